"""A run continues the training of Graphcore's published program from its checkpoint, moments and updates included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.published_checkpoints import (
    QKV,
    Arrays,
    Options,
    Sizes,
    graph_paths,
    random_weights,
    write_published,
    write_random,
)
from tests.support.record_samples import SEQUENCE, VOCABULARY
from tests.support.runs import BATCH, SMALL, last_checkpoint, logged, read_json, train, trained, variables, write_config

pytestmark = pytest.mark.slow

UPDATES = 6
RATE, BETA_1, BETA_2, EPSILON = 1e-3, 0.9, 0.999, 1e-6
SIZES = Sizes(layers=2, hidden=32, intermediate=64, words=VOCABULARY, positions=SEQUENCE)
CONSTANT = {"name": "AdamW", "weight_decay_rate": 0.0}
CONSTANT["learning_rate"] = {"schedule_name": "constant", "max_learning_rate": RATE, "warmup_frac": 0.0}


def config(path: Path, dataset: Path, start: Path, updates: int = UPDATES + 2, **changes: object) -> Path:
    sizes = {**SMALL, "vocab_size": VOCABULARY, "max_position_embeddings": SEQUENCE, "hidden_dropout_prob": 0.0}
    given = {"bert_config": sizes, "optimizer_opts": CONSTANT, "global_batches_per_log": 1, **changes}
    return write_config(
        path, dataset, updates, pretrained_ckpt_path=str(start), continue_pretrained=True, keep_last=None, **given
    )


def checkpoint(folder: Path, task: str, options: Options) -> tuple[Path, Arrays, tuple[Arrays, Arrays]]:
    return write_random(folder / f"{UPDATES}.ckpt", task, SIZES, options, UPDATES)


def in_a_run(name: str, arrays: Arrays) -> np.ndarray:
    """Return the value of a weight, or of a moment, that a run's checkpoint has by this name."""
    layer = f"bert.encoder.layer.{name[4]}." if name.startswith("hid_") else ""
    if "/qkv/" in name:
        return np.concatenate([arrays[f"{layer}attention.self.{part}.weight"].T for part in QKV], axis=-1)
    names = {
        "emb/embeddings/word": "bert.embeddings.word_embeddings.weight",
        "emb/embeddings/position": "bert.embeddings.position_embeddings.weight",
        "emb/embeddings/segment": "bert.embeddings.token_type_embeddings.weight",
        "heads/masked_lm/bias": "cls.predictions.bias",
    }
    parts = {
        "emb/embeddings/norm": "bert.embeddings.LayerNorm",
        "pool/pooler/dense": "bert.pooler.dense",
        "heads/next_sentence/dense": "cls.seq_relationship",
        "attention_output/dense": f"{layer}attention.output.dense",
        "attention_output/norm": f"{layer}attention.output.LayerNorm",
        "intermediate/dense": f"{layer}intermediate.dense",
        "feed_forward_output/dense": f"{layer}output.dense",
        "feed_forward_output/norm": f"{layer}output.LayerNorm",
        **{f"attention/{part}": f"{layer}attention.self.{part}" for part in QKV},
    }
    if name in names:
        return arrays[names[name]]
    stem, _, leaf = name.rpartition("/")
    whole = next(value for part, value in parts.items() if stem.endswith(part))
    value = arrays[f"{whole}.{'bias' if leaf in ('bias', 'beta') else 'weight'}"]
    return value.T if leaf == "kernel" else value


@pytest.mark.parametrize(
    "options", [Options(), pytest.param(Options(merged=False, biases=True), marks=pytest.mark.long)]
)
def test_an_update_is_that_of_the_moments_and_updates_of_the_checkpoint(
    root: Path, dataset: Path, options: Options
) -> None:
    prefix, arrays, moments = checkpoint(root / f"run-{options.merged}", "pretraining", options)
    run = trained(config(root / f"continued-{options.merged}.json", dataset, prefix, UPDATES + 1), root / "runs")
    assert [period["step"] for period in logged(run)] == [UPDATES + 1] == [int(last_checkpoint(run).name[5:])]
    names = read_json(last_checkpoint(run) / "checkpoint.json")["optimizer_order"]
    weights, state = variables(run, "weights"), variables(run, "optimizer")
    assert state["optimizer/_iterations"] == UPDATES + 1
    for number, name in enumerate(names):
        # Keras numbers the variables of an optimizer: two counters, all first moments, all second ones.
        first, second = (state[f"optimizer/_variables/{1 + number + shift}"] for shift in (0, len(names)))
        m, v = (in_a_run(name, values) for values in moments)
        gradient = (first - BETA_1 * m) / (1 - BETA_1)  # it is the same in both moments
        assert np.abs(gradient).max() < 0.5  # not that of other moments, which are about 1
        np.testing.assert_allclose(second, BETA_2 * v + (1 - BETA_2) * np.square(gradient), rtol=1e-5, err_msg=name)
        corrected, t = first / (1 - BETA_1 ** (UPDATES + 1)), UPDATES + 1
        step = RATE * corrected / (np.sqrt(second / (1 - BETA_2**t)) + EPSILON)
        before = in_a_run(name, arrays).astype(np.float32)
        np.testing.assert_allclose(weights[name], before - step, atol=2e-6, err_msg=name)


def test_a_continued_run_that_was_interrupted_goes_on_alike(root: Path, dataset: Path) -> None:
    prefix, *_ = checkpoint(root / "whole", "pretraining", Options())
    whole = trained(config(root / "whole.json", dataset, prefix), root / "runs")
    short = config(root / "short.json", dataset, prefix, ckpt_every_n_steps_per_execution=1)
    run = trained(short, root / "runs")
    for path in (run / "checkpoints").glob("step-*"):
        if not path.name.endswith(str(UPDATES + 1)):
            path.rename(path.with_name(f"away-{path.name}"))
    train(short, root / "runs", "--name", "short", "--resume", status=0)
    assert logged(run) == logged(whole) and len(logged(run)) == 2


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("pretraining", {"use_cls_layer": True}, "has no moments of heads/masked_lm/transform"),
        ("pretraining", {"total_num_train_samples": UPDATES * BATCH}, "has 6 updates, and the run ends after 6"),
        ("without an optimizer", {}, "has no optimizer's state of Graphcore's program"),
        ("renumbered", {}, "5.ckpt is of a run that began with the moments of another, so its optimizer has counted 6"),
    ],
)
def test_what_cannot_be_continued_is_refused(
    root: Path,
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    task: str,
    changes: dict[str, object],
    message: str,
) -> None:
    if task == "without an optimizer":
        arrays = random_weights("pretraining", SIZES, Options())
        prefix = write_published(tmp_path / "6.ckpt", graph_paths("pretraining", arrays, SIZES.layers, Options()))
    elif task == "renumbered":  # the program restores the moments, but counts its updates from 0
        prefix, *_ = checkpoint(tmp_path, "pretraining", Options())
        for path in tmp_path.glob("6.ckpt.*"):
            path.rename(path.with_name(path.name.replace("6.", "5.", 1)))
        prefix = tmp_path / "5.ckpt"
    else:
        prefix, *_ = checkpoint(tmp_path, task, Options())
    outcome = train(config(tmp_path / "refused.json", dataset, prefix, **changes), tmp_path)
    assert outcome.status == 2 and message in outcome.errors, outcome.errors
