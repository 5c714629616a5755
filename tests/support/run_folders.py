"""Writes run folders as training leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from checkpoints.writer import write_checkpoint


def period(step: int, mlm: float = 5.0, total: int = 100, **changes: Any) -> dict[str, Any]:
    """Return the line of ``metrics.jsonl`` of a logging period that ends at ``step``."""
    record = {
        "step": step,
        "total_steps": total,
        "samples": step * 8,
        "seconds": step * 0.5,
        "throughput": 16.0 + step % 3,
        "compiling": step == 10,
        "learning_rate": 1e-4 * step,
        "metrics": {"loss": mlm + 0.7, "mlm_loss": mlm, "nsp_loss": 0.7, "mlm_accuracy": 0.1},
    }
    return {**record, **changes}


def make_run(folder: Path, periods: list[dict[str, Any]], **files: Any) -> Path:
    """Write a run folder with these periods and JSON files, which are given by their names without suffix."""
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(p) + "\n" for p in periods))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def write_step(folder: Path, step: int, description: dict[str, Any]) -> Path:
    """Write a checkpoint whose weights are a text."""

    def write_files(temporary: Path) -> None:
        for name in ("weights.index", "weights.data-00000-of-00001"):
            (temporary / name).write_text(f"weights {step}")

    return write_checkpoint(SimpleNamespace(description={}, write_files=write_files), folder, step, description)
