"""Resuming: permitted changes of a config, the order of data, locks, history, metrics, and the command."""

from __future__ import annotations

import functools
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from checkpoints.folder import find_checkpoint, folder_name
from data_utils.classification.features import classification_features
from data_utils.records.arrays import ArrayReader
from data_utils.records.order import select_batch
from data_utils.records.pipeline import identify_samples, training_dataset
from settings.derived import with_values
from settings.fields import ResumePolicy
from settings.schema import leaves
from tasks.cli import resume_command
from tests import ROOT
from tests.support.config_files import load_config
from tests.support.run_folders import write_step
from training.resume import Position, check_same_data, missing_metrics, run_to_resume
from training.run_folder import RESOLVED, FolderLocks, RunFolder, config_for_files
from training.same_config import changed_fields, differences
from utilities.errors import UserError
from utilities.history import END, History

CONFIGS = ROOT / "configs"
COMPOSED = [
    CONFIGS / "pretraining" / "pretrain_tiny_128_phase1.json",
    CONFIGS / "devlin.json",
    CONFIGS / "systems" / "cpu.json",
]


@functools.cache
def config_of(*flags: str):
    return load_config("pretraining", ["--config", *map(str, COMPOSED), "--generated-dataset", *flags]).config


@functools.cache
def user_data():
    data = ["--classification-data.train-file", "train.csv", "--classification-data.classes", "good", "bad"]
    flags = ["--bert-model-name", "bert-base-uncased", *data, "--num-epochs", "1"]
    return load_config("classification", ["--config", str(CONFIGS / "fine_tuning.json"), *flags]).config


def test_same_config_has_no_differences():
    config = config_of()
    recorded = json.loads(json.dumps(config_for_files(config)))
    assert differences(config, recorded) == {}
    assert changed_fields(config_for_files(config), recorded) == {}


@pytest.mark.parametrize("name", [name for name, leaf in leaves().items() if leaf.resume_policy is ResumePolicy.FIXED])
def test_changes_of_fixed_fields_are_named(name):
    config = user_data() if name.startswith("classification_data.") else config_of()
    # Unset, these are those of the run.
    given = {"embedding.pooling": "cls", "embedding.normalize": True}
    config = with_values(config, {name: given[name]} if name in given else {})
    recorded = json.loads(json.dumps(config_for_files(config)))
    *sections, key = name.split(".")
    section = recorded
    for part in sections:
        section = section[part]
    section[key] = 12345
    (difference,) = differences(config, recorded).values()
    if sections == ["global_batch"]:  # of which only the product counts
        assert difference.startswith("global_batch is")
    else:
        assert difference.startswith(name) and "12345" in difference


def test_new_fields_had_their_defaults():
    config = config_of()
    recorded = json.loads(json.dumps(config_for_files(config)))
    del recorded["optimizer_opts"]["gradient_accumulation_reduction"], recorded["keep_last"]
    assert differences(config, recorded) == {}


def batch(micro: int, replicas: int, accumulation: int, *flags: str):
    return config_of(
        *("--global-batch.micro-batch-size", str(micro), "--global-batch.replicas", str(replicas)),
        *("--global-batch.grad-acc-steps-per-replica", str(accumulation), "--ipu-config.pipeline-stages", "none"),
        *("--ipu-config.pipeline-device-mapping", "none", *flags),
    )


NO_DROPOUT = ("--bert-config.hidden-dropout-prob", "0", "--bert-config.attention-probs-dropout-prob", "0")
RIGL = ("--sparsity.ratio", "0.5", "--sparsity.method", "rigl")  # room: sparsity
SUM = ("--optimizer-opts.gradient-accumulation-reduction", "sum")


@pytest.mark.parametrize(
    "split, flags, expected",
    [
        ((4, 4, 2), (), []),
        ((4, 8, 2), (), ["global_batch is 64 samples and was 32"]),
        ((8, 2, 2), (), ["global_batch.micro_batch_size is 8 and was 4"]),
        ((8, 2, 2), NO_DROPOUT, []),
        ((8, 2, 2), (*NO_DROPOUT, *RIGL), ["global_batch.micro_batch_size is 8 and was 4"]),  # room: sparsity
        ((4, 4, 2), (*NO_DROPOUT, *RIGL), []),  # room: sparsity
        ((4, 4, 2), SUM, ["global_batch.grad_acc_steps_per_replica is 2 and was 4"]),
    ],
)
def test_global_batch_may_be_divided_differently(split, flags, expected):
    assert list(differences(batch(*split, *flags), config_for_files(batch(4, 2, 4, *flags))).values()) == expected


@pytest.mark.parametrize(
    "flags, expected",
    [
        ((), []),
        (("--sparsity.ratio", "0.5", "--sparsity.method", "static"), []),  # room: sparsity
        (("--sparsity.ratio", "0.5"), ["global_batches_per_log is 7 and was 5"]),  # room: sparsity
    ],
)
def test_logging_periods_may_change_unless_something_happens_at_their_ends(flags, expected):
    before = config_for_files(config_of("--global-batches-per-log", "5", *flags))
    assert list(differences(config_of("--global-batches-per-log", "7", *flags), before).values()) == expected


def test_wrong_answers_of_sentence_embeddings_are_those_of_the_micro_batch():
    def config_of(size: int, accumulation: int, *more: str):
        path = CONFIGS / "fine_tuning.json"
        sizes = ["--global-batch.micro-batch-size", str(size), "--global-batch.grad-acc-steps-per-replica"]
        flags = [*NO_DROPOUT, *sizes, str(accumulation), "--embedding.train-file", "pairs.csv", *more]
        return load_config("sentence_embedding", ["--config", str(path), "--pretrained-ckpt-path", "x", *flags]).config

    (difference,) = differences(config_of(32, 1), config_for_files(config_of(16, 2))).values()
    assert difference == "global_batch.micro_batch_size is 32 and was 16"
    scored = ("--embedding.label", "score")
    assert differences(config_of(32, 1, *scored), config_for_files(config_of(16, 2, *scored))) == {}


@pytest.mark.parametrize(
    "arguments, name, expected",
    [
        ("--config c.json", "c", "--config c.json --name c --resume"),
        ("--name x --config c.json --resume", "x-2", "--config c.json --name x-2 --resume"),
        ("--name=x --resume=true --seed 2", "x", "--seed 2 --name x --resume"),
        ("--resume yes --config 'my c.json'", "x", "--config 'my c.json' --name x --resume"),
    ],
)
def test_resume_command(arguments, name, expected):
    assert resume_command("run_squad.py", shlex.split(arguments), name) == f"python run_squad.py {expected}"


def test_resume_command_can_be_pasted_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resume_command("run_squad.py", [], "x") == f"python {ROOT / 'run_squad.py'} --name x --resume"


@pytest.fixture
def reader() -> ArrayReader:
    arrays = {"input_ids": np.arange(100 * 2).reshape(100, 2) % 50, "labels": np.arange(100) % 3}
    ones = np.ones((100, 2), np.int32)
    return ArrayReader(classification_features(2, 50, 3), {**arrays, "input_mask": ones, "segment_ids": ones * 0})


def data(reader, first: int, count: int, skipped=()):
    options = {"micro_batch_size": 4, "micro_batches_per_update": 2, "seed": 3}
    dataset = training_dataset(reader, first_update=first, num_updates=count, skipped=skipped, **options)
    return [element["input_ids"].numpy() for element in dataset]


def test_skipped_batches_are_left_out(reader):
    whole = data(reader, 0, 12)
    left = data(reader, 0, 9, skipped=(2, 3, 7))
    for number, expected in zip(left, [0, 1, 4, 5, 6, 8, 9, 10, 11]):
        np.testing.assert_array_equal(number, whole[expected])
    for number, expected in zip(data(reader, 4, 3, skipped=(2, 3, 7)), [6, 8, 9]):
        np.testing.assert_array_equal(number, whole[expected])
    assert select_batch(10**9, ()) == 10**9


def test_data_is_identified_by_its_content(reader):
    identity = identify_samples(reader)
    assert identity == identify_samples(reader) and len(identity) == 64
    reader._arrays["input_ids"][0, 0] += 1
    assert identify_samples(reader) != identity


def test_folder_is_locked_by_one_run(tmp_path):
    with FolderLocks() as locks, FolderLocks() as others:
        locks.lock(tmp_path)
        with pytest.raises(UserError, match="another run is writing"):
            others.lock(tmp_path)
        with pytest.raises(UserError, match="cannot be written to"):
            others.lock(tmp_path / "absent")
    with FolderLocks() as locks:
        locks.lock(tmp_path)


def test_the_folder_of_an_earlier_config_is_only_read(tmp_path):
    """Another run may be writing to it, if this one now writes to a folder of its own."""

    def load(folder: str, *flags: str):
        flags = ("--output-dir", str(tmp_path), "--name", "mine", "--save-ckpt-path", str(tmp_path / folder), *flags)
        return load_config("pretraining", ["--config", *map(str, COMPOSED), "--generated-dataset", *flags])

    def save(step: int, identity: str | None) -> Path:
        return write_step(
            tmp_path / "earlier", step, {"run": identity, **Position().description(step, 0.0, 32, "data")}
        )

    def resume() -> Position:
        with FolderLocks() as locks:
            return run_to_resume(load("now", "--resume"), locks).position

    run = RunFolder.create(str(tmp_path), "mine", "pretraining")
    run.write(RESOLVED, {"config": config_for_files(load("earlier").config)})
    unfinished = tmp_path / "earlier" / ".writing-step-00000009"
    unfinished.mkdir(parents=True)
    assert resume().checkpoint is None
    save(10, "other")
    (save(20, "other") / "weights.index").write_text("being removed")
    with pytest.raises(UserError, match=r"is intact .*step-00000020"):
        resume()
    own = save(8, run.identity)
    assert resume().checkpoint.folder == own
    assert {path.name for path in unfinished.parent.iterdir()} == {unfinished.name, *map(folder_name, (8, 10, 20))}


def test_other_data_are_refused_by_the_name_that_they_have(tmp_path):
    step = write_step(tmp_path, 8, Position().description(8, 0.0, 32, "begun"))
    position = Position(8, checkpoint=find_checkpoint(step))
    check_same_data(position, "begun", "data/128")
    for folder, what in (("data/64", "dataset_dir: data/64"), (None, "the data set")):
        with pytest.raises(UserError, match=f"^{what} is not the data that the run was begun with"):
            check_same_data(position, "other", folder)


def test_an_output_folder_that_is_not_there_is_one_line(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "unmounted")
    with pytest.raises(UserError, match="output_dir: cannot make"):
        RunFolder.create(str(tmp_path / "runs"), "mine")
    names = [RunFolder.create(str(tmp_path / "a" / "b"), "mine").path.name for _ in range(3)]
    assert names == ["mine", "mine-2", "mine-3"]


def test_history_survives_an_incomplete_line(tmp_path):
    history = History(tmp_path)
    assert history.events() == [] and not history.finished
    history.add("begin", 0, id="1")
    with open(history.path, "a") as file:
        file.write('{"event": "resu')
    history.add(END, 5)
    assert [event["event"] for event in history.events()] == ["begin", "end"]
    assert history.finished
    history.add("resume", 5)
    assert not history.finished


def test_metrics_after_the_checkpoint_are_discarded(tmp_path):
    run = RunFolder(tmp_path)
    run.discard_metrics_after(3)  # there are none yet
    lines = [json.dumps({"step": step, "metrics": {"a_loss": step, "b_loss": 0.5}}) for step in (1, 2, 3, 4)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 5, "metr')
    run.discard_metrics_after(3)
    assert (tmp_path / "metrics.jsonl").read_text() == "\n".join(lines[:3]) + "\n"
    assert run.last_step() == 3
    assert [loss for _, loss in run.losses(("a_loss", "b_loss"))] == [1.5, 2.5, 3.5]
    assert missing_metrics(run, 3) == []
    assert "metrics.jsonl ends at step 3" in missing_metrics(run, 4)[0]
    (tmp_path / "metrics.jsonl").unlink()
    assert "metrics.jsonl is missing" in missing_metrics(run, 4)[0] and missing_metrics(run, 0) == []


def test_edited_metrics_are_ignored(tmp_path):
    rows = [
        {"step": 1, "metrics": "abc"}, {"step": 2, "metrics": {"a_loss": "x"}}, {"step": 3, "metrics": {"a_loss": [1]}},
        {"step": 4, "evaluation": 5}, {"step": 5, "evaluation": {"f1": "high"}}, {"step": True, "metrics": {}},
        {"step": 6, "metrics": {"a_loss": 2.0}},
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = RunFolder(tmp_path)
    assert [loss for _, loss in run.losses(("a_loss",))] == [2.0]
    assert [step for step, score in run.evaluations("f1") if np.isnan(score)] == [5]
