"""Mutated configs and flags. An accepted config must have the values of its JSON and obey the documented rules."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from settings.config_files import read_config
from settings.fields import Leaf
from settings.loading import LoadedConfig
from settings.schema import leaves, sections
from settings.sections import BertConfig, IpuConfig  # room: pipeline
from tasks.cli import main
from tests import ROOT
from tests.fuzz.harness import ACCEPTED, REFUSED, WrongError, check_line

TASK_OF_FOLDER = {"pretraining": "pretraining", "squad": "squad", "glue": "classification"}

HUGE = 10**30
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 128, 384, 512, 2**31, 2**63 - 1, 2**63, HUGE, -HUGE,
    0.0, 0.5, 1.0, -0.5, 1.5, 1e-9, 1e9, 1e308, 4096.0, 1e400, -1e400, float("nan"),
    "", " ", "none", "None", "null", "true", "1", "0.1", "1e-4", "hid", "emb", "LAMB", "AdamW", "mrpc", "cpu", "gpu",
    "$HOME/x", "${}", "$NOT_SET_ANYWHERE/x", "~/x", "~nobody_at_all/x", "a\0b", "a\nb", "a/b", "..", ".", "x" * 300,
    "\ud800", "é\u202e", "<script>", "%s%n{0}", "hf_" + "a" * 34,
    [], [[]], [None], [1, 2], ["a"], [0.2, 0.2], ["emb", "hid"], [["emb"], ["hid", "hid"]], [[["emb"]]], [True], [-1],
    {}, {"a": 1}, {"name": "LAMB"}, {"a": {"b": {"c": {}}}},
)  # fmt: skip
WEIGHTS = {"good": 20, "near": 4, "set": 6, "delete": 2, "move": 1, "insert": 1, "cut": 1, "flip": 1, "flag": 3}
TEXTS = (
    "{", "}", "[", "]", ",", ":", '"', "'", "//", "#", "\\", "\0", "\ufeff", "NaN", "-", "1e999", "\n", "null", "e",
)  # fmt: skip

Mutation = tuple[Any, ...]


class Configs:
    """Configs of this project with a few changes to keys, values, text and flags."""

    name = "configs"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bases = dict(base_configs())

    def draw(self, chance: random.Random) -> list[Mutation]:
        base = chance.choice(sorted(self._bases))
        count = 1 + min(int(chance.expovariate(1.2)), 6)
        return [("base", base), *(self._mutation(chance, self._bases[base][1]) for _ in range(count))]

    def _mutation(self, chance: random.Random, values: dict[str, Any]) -> Mutation:
        path = chance.choice(list_paths(values) + [tuple(name.split(".")) for name in leaves()])
        kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if kind == "set":
            return (kind, path, chance.choice(VALUES))
        if kind == "good":
            leaf = chance.choice(list(leaves().values()))
            return ("set", leaf.path, good_value(leaf, chance))
        if kind == "near":
            return (kind, path, chance.choice(["+1", "-1", "*2", "/2", "neg", "text", "list", "drop", "again"]))
        if kind == "move":
            return (kind, path, chance.choice([*sections(), "optimizer_opts.learning_rate"]))
        if kind == "insert":
            return (kind, chance.random(), chance.choice(TEXTS))
        if kind in ("cut", "flip"):
            return (kind, chance.random(), chance.randrange(256))
        if kind == "flag":
            return (kind, chance.choice(flag_words()), chance.choice([None, *map(word, VALUES)]))
        return (kind, path)

    def attempt(self, mutations: Sequence[Mutation]) -> str:
        task, values = self._bases[mutations[0][1]]
        values = copy.deepcopy(values)
        for mutation in mutations:
            change_values(values, mutation)
        text = json.dumps(values)
        for mutation in mutations:
            text = change_text(text, mutation)
        path = self._folder / "fuzzed.json"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        flags = [part for m in mutations if m[0] == "flag" for part in (m[1:] if m[2] is not None else m[1:2])]
        with mock.patch.dict(os.environ, DATASETS_DIR=str(self._folder)):
            return judge(task, path, text, flags)


def judge(task: str, path: Path, text: str, flags: list[str]) -> str:
    """Load a config like the command, with its plan, and check the result."""
    caught: list[LoadedConfig] = []
    arguments = ["--config", str(path), *flags]
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        planned = main(task, [*arguments, "--plan"], caught.append)
        if any(flag in ("--help", "--schema", "--plan") for flag in flags):
            return ACCEPTED
        status = main(task, arguments, caught.append)
    errors_shown = [line for line in errors.getvalue().splitlines() if line.startswith("error: ")]
    if status != planned:
        raise WrongError(f"--plan ends with {planned}, the run with {status}")
    if status == 2:
        if len(errors_shown) != 2 or errors_shown[0] != errors_shown[1] or caught:
            raise WrongError(f"not one line: {errors.getvalue()!r}")
        check_line(errors_shown[0], lambda line: names_something(line, path, flags))
        return REFUSED
    if status != 0 or errors_shown or len(caught) != 1:
        raise WrongError(f"status {status}: {errors.getvalue()!r}")
    check_meaning(caught[0], json.loads(text), flags)
    check_rules(caught[0])
    check_plan(caught[0], out.getvalue())
    return ACCEPTED


def names_something(line: str, path: Path, flags: list[str]) -> bool:
    return any(name in line for name in (path.name, *leaves(), *sections(), "--", *flags) if name)


def check_meaning(loaded: LoadedConfig, tree: dict[str, Any], flags: list[str]) -> None:
    """Check that the config has each value as written in the file, unless a flag or a rule has changed it."""
    given = set(flags) | {flag.split("=")[0] for flag in flags}
    for name, value in iterate_leaves(tree):
        if name in ("about", "extends") or name.startswith("about."):
            continue
        leaf = leaves().get(name)
        if name in ("bert_config.max_seq_length", "bert_config.max_predictions_per_seq"):
            continue  # a warning
        if leaf is None:
            raise WrongError(f"{name} is no key, and was accepted")
        if leaf.flag in given or loaded.origins[name] == "derived":
            continue
        result: Any = loaded.config
        for key in leaf.path:
            result = getattr(result, key)
        if not same(result, value, leaf.kind.name):
            raise WrongError(f"{name}: the file says {value!r}, the config {result!r}")


def same(result: Any, written: Any, kind: str) -> bool:
    if kind == "path" and isinstance(written, str):
        return result == os.path.expanduser(os.path.expandvars(written)) or result == written
    if written == "none" and result is None:
        return True
    if kind == "stages" and isinstance(written, list):
        return result == [stage.split() if isinstance(stage, str) else stage for stage in written]
    if isinstance(result, bool) or isinstance(written, bool):
        return result is written
    if isinstance(result, (int, float)):
        if not isinstance(written, (int, float)) or not math.isfinite(result):
            return False
        return result == written or (isinstance(result, float) and result == float(written))
    return type(result) is type(written) and result == written


def check_rules(loaded: LoadedConfig) -> None:
    """Check the rules of the users' documentation of the keys, which are repeated here."""
    config, task = loaded.config, loaded.task
    batch, ipu, bert = config.global_batch, config.ipu_config, config.bert_config
    rules: dict[str, bool] = {
        "whole numbers above 0": all(
            type(n) is int and 0 < n < 2**63
            for n in (batch.micro_batch_size, batch.replicas, batch.grad_acc_steps_per_replica, config.max_seq_length)
        ),
        "a seed of TensorFlow's": 0 <= config.seed < 2**32,
        "sharded state off-chip on IPUs": config.execution.platform != "graphcore"
        or not ipu.replicated_tensor_sharding
        or config.optimizer_state_offchip is not False,
        "QKV bias needs the split": config.use_qkv_split is True or not config.use_qkv_bias,
        "warm-up is a fraction": 0 <= config.optimizer_opts.learning_rate.warmup_frac <= 1,
        "a learning rate above 0": 0 < config.optimizer_opts.learning_rate.max_learning_rate < math.inf,
        "an update at least": config.total_num_train_samples is None
        or config.total_num_train_samples >= config.samples_per_update,
        "a name for a folder": bool(config.name) and "/" not in config.name and config.name not in (".", ".."),
    }
    if bert is not None:
        rules["heads divide the width"] = bert.hidden_size % bert.num_attention_heads == 0
        rules["slices divide the vocabulary"] = bert.vocab_size % config.embedding_serialization_factor == 0
        rules["a position for each token"] = config.max_seq_length <= bert.max_position_embeddings
    if task == "pretraining":
        rules["no more predictions than tokens"] = config.max_predictions_per_seq <= config.max_seq_length
        rules["data, or none wanted"] = config.dataset_dir is not None or config.generated_dataset
    rules.update(rules_of_stages(ipu, bert))  # room: pipeline
    broken = [rule for rule, kept in rules.items() if not kept]
    if broken:
        raise WrongError(f"accepted against the rule: {', '.join(broken)}")


def rules_of_stages(ipu: IpuConfig, bert: BertConfig | None) -> dict[str, bool]:  # room: pipeline
    """Return the rules of a pipeline, if there is one, and whether they are kept."""
    rules: dict[str, bool] = {}
    if ipu.pipeline_stages is not None:
        if bert is not None:  # sizes are not known before the weights are, if these decide one
            layers = sum(stage.count("hid") for stage in ipu.pipeline_stages)
            rules["all layers in the stages"] = layers == bert.num_hidden_layers
        rules["an IPU for each stage"] = len(ipu.pipeline_device_mapping or []) == len(ipu.pipeline_stages)
        rules["a share for each IPU"] = has_share_for_each_ipu(ipu)  # room: graphcore
    return rules


def has_share_for_each_ipu(ipu: IpuConfig) -> bool:  # room: graphcore
    shares = ipu.matmul_available_memory_proportion_per_pipeline_stage
    return shares is None or len(shares) == max(ipu.pipeline_device_mapping or [0]) + 1


def check_plan(loaded: LoadedConfig, plan: str) -> None:
    """Check that the plan's steps are samples / (micro batch × replicas × accumulation), rounded down."""
    samples, batch = loaded.config.total_num_train_samples, loaded.config.global_batch
    if samples is None or loaded.config.packing.max_sequences_per_pack is not None:  # a pack holds several samples
        return
    steps = samples // (batch.micro_batch_size * batch.replicas * batch.grad_acc_steps_per_replica)
    result = re.search(r"steps +([\d,]+) weight updates", plan)
    if result is None or int(result.group(1).replace(",", "")) != steps:
        raise WrongError(f"the plan does not say {steps} steps: {result and result.group(0)}")


def base_configs() -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """Return every config of the project as one object, with its bases merged in: name → task and values."""
    for folder, task in TASK_OF_FOLDER.items():
        for path in sorted((ROOT / "configs" / folder).glob("*.json")):
            for system in ((), (ROOT / "configs" / "systems" / "cpu.json",)):
                values = read_config([path, *system]).values
                values.setdefault("dataset_dir", "data")
                yield "+".join(str(file.relative_to(ROOT)) for file in (path, *system)), (task, values)


def list_paths(values: dict[str, Any]) -> list[tuple[str, ...]]:
    return [tuple(name.split(".")) for name, _ in iterate_leaves(values)]


def iterate_leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from iterate_leaves(value, f"{prefix}{key}.")
        elif not (isinstance(value, dict) and prefix + key in sections()):
            yield prefix + key, value


def good_value(leaf: Leaf, chance: random.Random) -> Any:
    """Return a value that is valid for the key, if the other keys allow it."""
    if leaf.optional and chance.random() < 0.15:
        return None
    if leaf.choices:
        return chance.choice(leaf.choices)
    if leaf.kind.name == "int":
        return chance.choice([1, 2, 4, 12, 64, 128, 384, 768, 1000, 30400, 5.0, 1e6])
    if leaf.kind.name == "float":
        return chance.choice([0.0, 0.1, 0.25, 0.999, 1, 1e-6, 128.0])
    simple = {"bool": [True, False], "str": ["a name", "été"], "path": ["runs", "$HOME", "~", "a/../b"]}
    lists = {
        "list[str]": [["a", "b"]],
        "list[int]": [[0], [0, 1, 2, 3, 0]],
        "list[float]": [[0.2], [0.2, 0.3, 1.0, 0.4]],
    }
    return chance.choice({**simple, **lists}.get(leaf.kind.name, [None]))


def change_values(values: dict[str, Any], mutation: Mutation) -> None:
    kind = mutation[0]
    if kind not in ("set", "delete", "near", "move"):
        return
    *outer, key = mutation[1]
    section: Any = values
    for name in outer:
        section = section.setdefault(name, {}) if isinstance(section, dict) else None
    if not isinstance(section, dict):
        return
    if kind == "set":
        section[key] = mutation[2]
    elif key in section:
        change_key(values, section, key, mutation)


def change_key(values: dict[str, Any], section: dict[str, Any], key: str, mutation: Mutation) -> None:
    value = section[key]
    if mutation[0] == "delete":
        del section[key]
    elif mutation[0] == "move":
        target: Any = values
        for name in filter(None, mutation[2].split(".")):
            target = target.setdefault(name, {}) if isinstance(target, dict) else None
        if isinstance(target, dict):
            target[key] = section.pop(key)
    else:
        section[key] = similar(value, mutation[2])


def similar(value: Any, how: str) -> Any:
    if how == "text":
        return word(value)
    if how == "list":
        return [value]
    if isinstance(value, list):
        return value[:-1] if how in ("drop", "-1", "/2") else value + value[-1:]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    changes: dict[str, Callable[[Any], Any]] = {
        "+1": lambda n: n + 1, "-1": lambda n: n - 1, "*2": lambda n: n * 2, "/2": lambda n: n / 2, "neg": lambda n: -n,
    }  # fmt: skip
    return changes[how](value) if how in changes else value


def change_text(text: str, mutation: Mutation) -> str:
    kind = mutation[0]
    if kind not in ("insert", "cut", "flip"):
        return text
    offset = int(mutation[1] * len(text))
    if kind == "insert":
        return text[:offset] + mutation[2] + text[offset:]
    if kind == "cut":
        return text[:offset]
    return text[:offset] + chr(mutation[2]) + text[offset + 1 :]


def flag_words() -> list[str]:
    flags = [leaf.flag for leaf in leaves().values()]
    return [*flags, *flags, "--config", "--help", "--schema", "--debugg", "-x", "seed=1", "--seed=3", "--"]


def word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
