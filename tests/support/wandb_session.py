"""A process that tracks one run in two parts, like a resumed training: ``… wandb_session.py FOLDER``."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from keras_extensions.listeners.reporting import Period, closing
from keras_extensions.listeners.wandb_run import WandbRun


def period(step: int) -> Period:
    return Period(
        step, 6, 1, 8 * step, float(step), 16.0, False, None, 1e-3, {"loss": 9.0 - step, "mlm_loss": 8.0 - step}
    )


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / "checkpoints" / f"step-{step:08d}"
    path.mkdir(parents=True)
    (path / "weights.index").write_text("w" * 1000)
    (path / "checkpoint.json").write_text(json.dumps({"step": step}))
    return path


def main(folder: Path) -> None:
    logging.basicConfig(level="INFO", format="%(message)s")
    config = {"seed": 7, "optimizer_opts": {"name": "LAMB"}}
    for first in (0, 3):
        run = WandbRun(folder, "my run", config, "my project", None, ["a", "b"])
        with closing([run]):
            run.begin(first, 6)
            for step in range(first + 1, first + 4):
                run.period(period(step))
            for step in (first + 1, first + 3):
                run.wrote("checkpoint", checkpoint(folder, step))
            (folder / "checkpoints" / f"step-{first + 1:08d}" / "weights.index").unlink()
            (folder / "checkpoints" / f"step-{first + 1:08d}" / "checkpoint.json").unlink()
            (folder / "checkpoints" / f"step-{first + 1:08d}").rmdir()  # rotated
            run.scored({"f1": 80.0 + first})
            (folder / "report.html").write_text(f"<p>{first}")
            run.wrote("report", folder / "report.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
