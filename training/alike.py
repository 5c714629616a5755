"""Whether all processes of a run were started to do the same."""

from __future__ import annotations

from execution.software.cluster.processes import Processes
from training.run_folder import shown_config
from utilities.config.fields import PER_REPLICA, value_at
from utilities.config.schema import TrainingConfig, leaves
from utilities.errors import UserError


def check_alike(processes: Processes, config: TrainingConfig, data: str, precision: str) -> None:
    """Compare this process with the chief. Others would train towards something else, or wait for what never comes.

    Args:
        config: of this process.
        data: a checksum of the samples that it trains on.
        precision: the number format that its machine computes in.

    Raises:
        UserError: it was started with another config, on other data, or on a machine that computes in another format.
    """
    if processes.is_alone:
        return
    own = shown_config(config)
    told = processes.decided(lambda: {"config": own, "data": data, "precision": precision})
    for name, leaf in leaves().items():
        mine, chiefs = value_at(own, leaf.path), value_at(told["config"], leaf.path)
        if leaf.freedom is not PER_REPLICA and mine != chiefs:
            raise UserError(
                f"{name} is {mine} for replica {processes.index} and {chiefs} for replica 0; start all with the same"
                " config and flags"
            )
    if told["precision"] != precision:
        raise UserError(
            f"execution.precision: replica {processes.index} computes in {precision}, replica 0 in {told['precision']};"
            " name one that all machines have"
        )
    if told["data"] != data:
        raise UserError(
            f"dataset_dir: {config.dataset_dir} of replica {processes.index} does not hold the data of replica 0; give"
            " all the same data set"
        )
