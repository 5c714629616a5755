"""The sparse study's arithmetic, and what it keeps of runs; here a run is some files that are written at once."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sparse_pareto
from benchmarks.sparse_pareto import METHODS, WIDTHS, Run, sparse_learning_rate
from utilities.errors import UserError

FLOPS = 2e12


def run(width: str = "tiny", method: str = "dense", rate: float = 1e-3) -> Run:
    return Run(width, method, rate, FLOPS, ratio=0.9, block_size=16, interval=44, seed=1, data="data")


class Product:
    """Stands for the command: writes what a run logs. Its losses fall, those of high learning rates lower."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.fails = ""

    def __call__(self, *arguments: Any, log: Path) -> None:
        options = {flag: value for flag, value in itertools.pairwise(arguments) if str(flag).startswith("--")}
        name, folder = options["--name"], options["--output-dir"] / options["--name"]
        if self.fails and name.startswith(self.fails):
            raise UserError(f"{name} failed")
        self.made.append(name)
        rate = options["--optimizer-opts.learning-rate.max-learning-rate"]
        updates = options["--total-num-train-samples"] // 32
        periods = [
            {"step": s, "samples": 32 * s, "metrics": {"mlm_loss": 9 - 3 * s / updates - 99 * rate}, "seconds": 6 * s}
            for s in range(5, updates + 1, 5)
        ]
        folder.mkdir()
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in periods))
        if "--sparsity.ratio" in options:
            patterns = [{"step": 0, "grown": 0, "explored": 0.1}, {"step": 50, "grown": 7, "explored": 0.4}]
            patterns = [{**pattern, "density": {}, "layers": {}} for pattern in patterns]
            (folder / "sparsity.jsonl").write_text("".join(json.dumps(row) + "\n" for row in patterns) + '{"step": 9')
        log.write_text("a log")


@pytest.fixture
def product(monkeypatch: pytest.MonkeyPatch) -> Product:
    product = Product()
    monkeypatch.setattr(sparse_pareto, "command", product)
    return product


def test_all_spend_the_same_operations_in_whole_logging_periods() -> None:
    for width in WIDTHS:
        for method in METHODS:
            of_kind = run(width, method)
            update = 32 * of_kind.per_sequence + of_kind.per_search / 44
            assert of_kind.updates % 5 == 0 and abs(of_kind.updates * update - FLOPS) <= 2.51 * update
    assert run(method="rigl").updates < run(method="set").updates == run(method="static").updates
    # By hand, tiny: 2 layers of 4 · 128² + 8 · 128² weights; a tenth of the 16×16 blocks is 6, 19 and 26 of 2 kinds.
    kept, whole, rest = 2 * 256 * 77, 2 * 12 * 128**2, run().per_sequence - 6 * 128 * 2 * 12 * 128**2
    sparse = run(method="rigl")
    assert sparse.per_sequence == 6 * 128 * kept + rest
    assert sparse.per_search == 32 * (rest + 4 * 128 * kept + 2 * 128 * whole)  # two sparse products and a whole one


def test_sparse_models_learn_faster_by_the_published_rule() -> None:
    assert sparse_learning_rate(2.18e-4, 0.9) == pytest.approx(1.4e-3, rel=0.01)  # as published for BERT-Medium
    assert sparse_learning_rate(1e-3, 0.0) == 1e-3


def test_runs_that_are_done_are_not_done_again(product: Product, tmp_path: Path) -> None:
    runs = [run(), run(method="rigl")]
    product.fails = "tiny-rigl"
    with pytest.raises(UserError, match="tiny-rigl"):
        sparse_pareto.train_all(runs, tmp_path, jobs=1, threads=1)
    product.fails = ""
    curves = sparse_pareto.train_all(runs, tmp_path, jobs=2, threads=1)
    assert product.made == ["tiny-dense-0.001", "tiny-rigl-0.001"]
    rigl = curves[runs[1]]
    assert rigl.explored == 0.4 and rigl.sequences == 32 * runs[1].updates
    # The pattern changes after update 50; what that takes is part of the period after it.
    steps = [160.0 * runs[1].per_sequence * period for period in range(1, 12)]
    assert rigl.flops[:11] == [*steps[:10], steps[10] + runs[1].per_search]
    sparse_pareto.train_all([replace(run(), seed=2)], tmp_path, jobs=1, threads=1)
    assert len(product.made) == 3


def test_a_study_ends_in_a_table_a_picture_and_a_verdict(
    product: Product, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = {"files": [{"records": 5000}], "unigram_entropy_nats": 6.99}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    arguments = ["--dataset", str(tmp_path), "--work", str(tmp_path / "work"), "--flops", str(FLOPS)]
    arguments += ["--learning-rates", "1e-3", "2e-3", "--json", str(tmp_path / "curves.json")]
    assert sparse_pareto.main([*arguments, "--picture", str(tmp_path / "curves.svg")]) == 0
    printed = capsys.readouterr().out
    assert len(product.made) == 16  # two widths, four methods, two learning rates
    table = [line for line in printed.splitlines() if line.startswith("|")]
    assert [re.split(r" *\| *", line)[1] for line in table[2:]] == [f"{w} {m}" for w in WIDTHS for m in METHODS]
    assert all("0.002 |" in line for line in table if "dense" in line)  # the better one
    assert "Of 16 runs, the table has those with the best learning rate" in printed and "up to" in printed
    assert "loss of the unigram baseline is 6.990 nats" in printed
    assert re.search(r"tiny: \w+ [\d.]+ < \w+ [\d.]+ < \w+ [\d.]+ < \w+ [\d.]+ \(lower is better\)", printed)
    assert len(json.loads((tmp_path / "curves.json").read_text())["measurements"]) == 16
    assert "<svg" in (tmp_path / "curves.svg").read_text()
