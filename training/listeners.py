"""Who is told of each logging period of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from keras_extensions.callbacks.live_report import LiveReport
from keras_extensions.callbacks.metrics_file import MetricsFile
from keras_extensions.callbacks.progress import Progress
from keras_extensions.callbacks.reporting import Listener
from keras_extensions.callbacks.tensorboard import TensorBoardScalars
from keras_extensions.callbacks.wandb_run import WandbRun
from training.on_track import OnTrack
from training.run_folder import RunFolder
from utilities.config.schema import TrainingConfig
from utilities.environment import environment_facts
from utilities.report.reference import REFERENCE_NAME, Band, curve, load_reference
from utilities.report.run_folder import read_run_folder
from utilities.secrets import mask_value

ROOT = Path(__file__).resolve().parent.parent.parent


def reference_of(config: TrainingConfig) -> Optional[Band]:
    """What the run's loss is held to; None where the config names nothing.

    Raises:
        UserError: what it names is no reference.
    """
    if config.reference_curve is None:
        return None
    return load_reference(Path(config.reference_curve), config.reference_tolerance)


def listeners_of(config: TrainingConfig, run: RunFolder, reference: Optional[Band]) -> List[Listener]:
    """Progress, metrics.jsonl, and what the config asks for: TensorBoard, W&B, the live report, the reference."""
    listeners: List[Listener] = [Progress(), MetricsFile(run.path / "metrics.jsonl")]
    if config.tensorboard:
        listeners.append(TensorBoardScalars(run.path / "tensorboard"))
    if config.enable_wandb:
        asked = (run.path.name, config.wandb_project_name, config.wandb_entity_name, config.wandb_tags)
        name, project, entity, tags = map(mask_value, asked)
        listeners.append(WandbRun(run.path, name, tracked_config(config), project, entity, tags))
    if reference is not None:
        run.write(REFERENCE_NAME, reference.as_json())
        before = curve(read_run_folder(run.path), reference.metric, reference.axis)
        listeners.append(OnTrack(reference, *before))
    if config.report:
        listeners.append(LiveReport(report_command(run.path), ROOT, config.report_every_minutes * 60))
    return listeners


def tracked_config(config: TrainingConfig) -> Dict[str, Any]:
    """What W&B shows as the run's config: the resolved one and the machine, without secrets."""
    settings = config.model_dump(mode="json", exclude={"extends", "about"})
    return json.loads(json.dumps(mask_value({**settings, "environment": environment_facts()})))


def report_command(folder: Path) -> List[str]:
    """Writes the report of a run that is under way."""
    return [sys.executable, "-m", "utilities.report", "--live", str(folder.resolve())]
