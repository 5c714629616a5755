"""How long everything takes: the timing of some updates, and how many of them fill the time.

The number is decided before the training, and anew between its phases and whenever a phase is too slow or too fast to
end in time. Each decision is written down, so that a command that is killed ends with the same weights.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence, Tuple

from data_utils.records.manifest import VALIDATION_FOLDER, load_manifest
from data_utils.word_vectors import TOKENS
from reports.run_files import read_run_folder
from tasks import train
from tasks.from_text.folder import UPDATES, Folder, damage_in
from tasks.from_text.inputs import Machine, Measured
from tasks.from_text.phases import Phase
from tasks.from_text.recipe import TOKENS_PER_UPDATE, Recipe
from utilities.errors import UserError

if TYPE_CHECKING:  # imports TensorFlow
    from keras_extensions.listeners.reporting import Period

TIMED_SHARE = 0.03  # of the training, in which updates are timed
TIMED_SECONDS = (5.0, 20.0)
FEWEST_UPDATES = 5
SLOWER_MOMENTS = 1.05  # an update in training over one in the timing: 1.01 to 1.13 times as long in six trainings
SHORT_ROWS = 0.94  # an update of 32-token rows over one of 128: 0.92 to 0.95 in bfloat16, 0.92 to 1.08 in float32
EVALUATION = 0.6  # seconds of an evaluated row, as a share of those of a trained one
EVALUATION_START = 0.3  # seconds before the first evaluated row, as a share of those before the first trained one
WORD_VECTOR_SECONDS = 9.0  # for a table of 8,192 × 8,192 counts, and as many for the 16 million tokens that are counted
EXPORT_SECONDS = 3.5  # from the last evaluation to the end of the process, which frees its memory
LATE = 0.025  # of the time; an end that is as early or as late is mended
UNSURE = 0.1  # of what is left to train, by which an end may be off unseen
ABSORBED = 0.5  # of the training of later phases, by which they may be longer or shorter, because they are fitted anew
# A length that was mended stays for a third of the time that was left then, because each change costs a start. A load
# that came and went changed the length of a training of an hour 18 times.
PATIENCE = 2 / 3
WINDOW_SECONDS = 20.0  # over which the time of an update is measured, or the last quarter of the phase


class Timing(NamedTuple):
    """Seconds of one update on average, and before all, compilation included, without the import of TensorFlow."""

    update: float
    start: float


def time_updates(folder: Folder, phase: Phase, recipe: Recipe) -> Timing:
    """Train a few updates on random rows in a run of its own, and return what they took."""
    begun = time.monotonic()
    seconds = min(max(TIMED_SHARE * recipe.training, TIMED_SECONDS[0]), TIMED_SECONDS[1])
    period = max(FEWEST_UPDATES, round(seconds / 3 * recipe.updates / recipe.training))
    output = folder.path / "timing"
    shutil.rmtree(output, ignore_errors=True)
    changes = {
        "name": phase.name,
        "output_dir": str(output),
        "dataset_dir": None,
        "generated_dataset": True,
        "total_num_train_samples": 3 * period * phase.rows,
        "global_batches_per_log": period,
        **dict.fromkeys(("word_vectors", "do_validation", "report", "tensorboard"), False),
    }
    config = {**phase.config, **changes, "pretrained_ckpt_path": recipe.start_from}
    path = folder.write(f"timing-{phase.name}.json", config)
    train(phase.task, path)
    run = read_run_folder(output / phase.name)
    shutil.rmtree(output, ignore_errors=True)
    path.unlink()
    rates = [rate for rate in run.rates()[1] if rate]
    if not rates:
        raise UserError(f"{folder.path}: no update could be timed; give more --hours")
    update = SLOWER_MOMENTS * phase.rows / statistics.median(rates)
    return Timing(update, max(0.0, time.monotonic() - begun - 3 * period * update))


def measure(machine: Machine, recipe: Recipe, phase: Phase, folder: Folder) -> Machine:
    """Return a machine with what the timing of updates of a recipe's last phase shows."""
    timing = time_updates(folder, phase, recipe)
    speed = machine.speed * recipe.training / recipe.updates / timing.update / _mean_update(recipe)
    after = len(recipe.lengths) * timing.start + seconds_around(timing, recipe.held_out * recipe.pass_updates)
    if not recipe.start_from:
        after += word_vector_seconds(recipe.vocabulary, recipe.updates * TOKENS_PER_UPDATE)
    return machine._replace(measured=Measured(speed, timing.start, folder.worked() + after))


def _mean_update(recipe: Recipe) -> float:
    """Return the seconds of an update over all phases, as a share of those of the last phase."""
    return 1.0 if len(recipe.lengths) == 1 else 1 + recipe.shares[0] * (SHORT_ROWS - 1)


def seconds_around(timing: Timing, updates: float) -> float:
    """Return the seconds from the end of training to that of the command; ``updates`` would train the held-out rows."""
    return EVALUATION * updates * timing.update + EVALUATION_START * timing.start + EXPORT_SECONDS


def word_vector_seconds(pieces: int, tokens: float) -> float:
    return WORD_VECTOR_SECONDS * ((pieces / 8_192) ** 2 + min(1.0, tokens / TOKENS))


class Change(NamedTuple):
    """A later decision: the phase, the update at which it was made, its updates from then on, and why."""

    phase: str
    step: int
    updates: int
    reason: str

    @property
    def described(self) -> str:
        return f"from update {self.step:,} on, because {self.reason}"


class Pace:
    """The updates of all trainings, which fill the time together; each begins after ``start`` seconds."""

    def __init__(self, folder: Folder, recipe: Recipe, phases: Sequence[Phase], start: float, hours: float) -> None:
        self._folder, self._recipe, self._phases = folder, recipe, phases
        last = recipe.training / recipe.updates / _mean_update(recipe)
        self._timing = Timing(last, start)
        self._update = {phase.name: last if phase is phases[-1] else SHORT_ROWS * last for phase in phases}
        self._budget, self._hours = hours * 3600, hours
        self._left_when_mended = math.inf
        known = folder.read(UPDATES)
        if known is None:
            self._decide()
            return
        with damage_in(folder.path / UPDATES):
            self.updates = {phase.name: int(known["updates"][phase.name]) for phase in phases}
            self.planned, before = int(known["planned"]), float(known["hours"])
            self.changes = [Change(**each) for each in known["changes"]]
        if hours > before:
            self._extend(before)

    def seconds_after(self, phase: Phase) -> float:
        """Return the seconds from the end of a phase's training to that of the command, without later training.

        They are those of a machine that is as fast as in the timing, as all seconds here that nothing else is said of.
        """
        return len(self._later(phase)) * self._timing.start + self._seconds_around()

    def watch(self, phase: Phase) -> Watch:
        return Watch(self, phase, self._update[phase.name])

    def _later(self, phase: Phase) -> Sequence[Phase]:
        return self._phases[[each.name for each in self._phases].index(phase.name) + 1 :]

    @property
    def _remaining(self) -> float:
        return self._budget - self._folder.worked()

    def left(self, phase: Phase, slower: float = 1.0) -> float:
        """Return the seconds that are left to train this phase and those after it, if all is so much slower now."""
        return self._remaining - slower * self.seconds_after(phase)

    def training_seconds(self, phase: Phase, step: int = 0) -> float:
        """Return what the updates that are left take, of this phase and of those after it, as they were timed."""
        return (self.updates[phase.name] - step) * self._update[phase.name] + self._seconds_of_later(phase)

    def _seconds_of_later(self, phase: Phase) -> float:
        return sum(self.updates[each.name] * self._update[each.name] for each in self._later(phase))

    def is_off(self, phase: Phase, step: int, slower: float) -> bool:
        """Return whether the command would end so early or late that it should be mended, which takes another start.

        An end is the less sure, the more is left to train. Later phases are fitted to the time that this one leaves.
        """
        if self._remaining > PATIENCE * self._left_when_mended:
            return False
        training, left = slower * self.training_seconds(phase, step), self.left(phase, slower)
        restart = slower * self._timing.start
        allowed = max(LATE * self._budget, restart) + UNSURE * training
        allowed += ABSORBED * slower * self._seconds_of_later(phase)
        if training > left:  # what a shorter training gains, which has to be started first
            fewest = FEWEST_UPDATES * slower * self._update[phase.name]
            return training - max(left, restart + fewest) > allowed
        has_enough_text = sum(self.updates.values()) < self._recipe.most_updates
        return has_enough_text and left - restart - training > allowed  # what a longer training gains

    def ended(self, phase: Phase, slower: Optional[float]) -> None:
        """Fit the next phase to the time that is left, unless it has begun."""
        following = next(iter(self._later(phase)), None)
        if following is not None and slower is not None and not (self._folder.path / following.name).exists():
            self.mend(following, 0, slower)

    def mend(self, phase: Phase, step: int, slower: Optional[float]) -> None:
        """Decide the rest anew from an update of a phase on, if one takes ``slower`` times what was timed."""
        assert slower is not None, "nothing is mended before an update is timed"
        self._left_when_mended = self._remaining if step else math.inf
        left = max(0.0, self.left(phase, slower) - slower * self._timing.start)
        rest = self.updates[phase.name] - step + sum(self.updates[each.name] for each in self._later(phase))
        most = self._recipe.most_updates - sum(self.updates.values()) + rest
        share = min(left / slower / self.training_seconds(phase, step), most / rest)
        update = slower * self._update[phase.name]
        why = f"{left:,.0f} s are left to train, and an update takes {update:.3g} s"
        self._change(phase, step, step + max(FEWEST_UPDATES, round((self.updates[phase.name] - step) * share)), why)
        for each in self._later(phase):
            self._change(each, 0, max(FEWEST_UPDATES, round(self.updates[each.name] * share)), why)
        self._write()

    def _change(self, phase: Phase, step: int, updates: int, reason: str) -> None:
        before = self.updates[phase.name]
        if updates != before:
            self.updates[phase.name] = updates
            self.changes.append(Change(phase.name, step, updates, reason))
            print(f"\nrows of {phase.name} tokens: {updates:,} updates instead of {before:,}, because {reason}")

    def _decide(self) -> None:
        first, recipe, folder = self._phases[0], self._recipe, self._folder
        before = self._timing.start + self._word_vector_seconds()
        left, update = self.left(first) - before, recipe.training / recipe.updates
        if left < FEWEST_UPDATES * len(self._phases) * update:
            worked, after = folder.worked(), self.seconds_after(first) + before
            raise UserError(
                f"--hours {self._hours:g}: of these {self._budget:,.0f} s, preparation and start took {worked:,.0f},"
                f" and {after:,.0f} s are needed before and after the training; repeat the command with at least"
                f" --hours {math.ceil(1.2 * (worked + after) / 3.6) / 1000:g}, which keeps what is prepared"
            )
        total = min(int(left / update), recipe.most_updates)
        shares = zip(self._phases, recipe.shares)
        self.updates = {phase.name: max(FEWEST_UPDATES, round(share * total)) for phase, share in shares}
        self.planned, self.changes = sum(self.updates.values()), []
        self._write()

    def _extend(self, before: float) -> None:
        """Let the last phase go on, because there is more time than there was."""
        last = self._phases[-1]
        left = self.left(last) - self._timing.start
        begun = (self._folder.path / last.name).exists()
        left -= 0.0 if begun else self.training_seconds(self._phases[0])
        most = self._recipe.most_updates - sum(self.updates.values())
        more = min(int(left / self._timing.update), most)
        if more > 0:
            why = f"there are {self._hours:g} hours instead of {before:g}"
            self._change(last, 0, self.updates[last.name] + more, why)
        self._write()

    def _write(self) -> None:
        self._folder.write(
            UPDATES,
            {
                "updates": self.updates,
                "planned": self.planned,
                "hours": self._hours,
                "seconds_of_an_update": round(self._timing.update, 5),
                "seconds_of_a_start": round(self._timing.start, 2),
                "seconds_worked": round(self._folder.worked(), 2),
                "changes": [change._asdict() for change in self.changes],
            },
        )

    def _word_vector_seconds(self) -> float:
        phase = self._phases[0]
        manifest = load_manifest(Path(phase.config["dataset_dir"]))
        if not phase.config["word_vectors"] or manifest is None:
            return 0.0
        return word_vector_seconds(manifest.vocabulary["size"], manifest.records * phase.config["max_seq_length"])

    def _seconds_around(self) -> float:
        last = self._phases[-1]
        manifest = load_manifest(Path(last.config["dataset_dir"]) / VALIDATION_FOLDER)
        return seconds_around(self._timing, 0.0 if manifest is None else manifest.records / last.rows)


class Watch:
    """Watches a training, and stops it where its length must be decided anew."""

    def __init__(self, pace: Pace, phase: Phase, timed: float) -> None:
        self._pace, self._phase, self._timed = pace, phase, timed
        self._points: List[Tuple[float, int]] = []  # seconds of training and updates, at the ends of periods
        self.stopped_at: Optional[int] = None

    def __call__(self, period: Period) -> bool:
        """Return whether to stop after a logging period."""
        self._points.append((period.seconds, period.step))
        slower = self.slower
        if slower is None or period.step >= period.total_steps:
            return False
        if self._pace.is_off(self._phase, period.step, slower):
            self.stopped_at = period.step
            return True
        return False

    @property
    def slower(self) -> Optional[float]:
        """Return what an update takes now, logs included, as a share of what was timed; None: not known yet."""
        if len(self._points) < 3:  # the first period has the compilation
            return None
        (first, _), (last, step) = self._points[0], self._points[-1]
        window = max(WINDOW_SECONDS, (last - first) / 4)
        seconds, begun = next(point for point in self._points if point[0] >= last - window or point is self._points[-2])
        return None if step == begun else (last - seconds) / (step - begun) / self._timed
