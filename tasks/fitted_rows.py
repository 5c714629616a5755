"""Fits the rows of a fine-tuning to its data: their length, and how many samples share one.

Only values that nobody has set are chosen, before TensorFlow is loaded, so that the plan and the run have the same.
N samples · S tokens of a row
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import os
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from tokenizers import Tokenizer

from checkpoints.folder import DESCRIPTION
from checkpoints.pretrained.hub_model import fetch as fetch_model
from checkpoints.pretrained.model_folder import find_lower_case
from checkpoints.pretrained.naming import is_model_name
from data_utils.classification.features import CHUNK
from data_utils.packing.plan import DEFAULT_ALGORITHM, plan_packing
from data_utils.tokenizer import find_vocabulary, make_tokenizer, read_vocabulary
from data_utils.tokenizer_files import VOCABULARY_NAME, read_tokenizer_files
from model.architecture import Architecture
from model.tasks import CLASSIFICATION, SENTENCE_EMBEDDING, TOKEN_CLASSIFICATION
from settings.architecture import known_architecture
from settings.derived import with_values
from settings.fields import value_at
from settings.loading import LoadedConfig
from settings.metadata import stated_in
from settings.problems import DATA, DEFAULT
from settings.schema import TrainingConfig
from tasks.planned_files import Samples, read_samples
from utilities.errors import UserError
from utilities.files import read_json_object
from utilities.run_names import RESOLVED
from utilities.text_folder import MODEL  # room: from_text

LENGTH, SEQUENCES, BETAS = "max_seq_length", "packing.max_sequences_per_pack", "packing.adjust_betas"
MICRO_BATCH = "global_batch.micro_batch_size"
MULTIPLE = 8  # of the length of a row
LEAST_FACTOR = 2.0  # samples in a pack; a pack costs more than a padded row, which small models notice
MOST_ROUNDING = 0.1  # share by which the samples of an update may differ from those without packs
MOST_SEQUENCES = 64  # in a pack
QUICK = "lpfhp"  # the algorithm by which numbers of samples in a pack are compared
ENOUGH = 0.98  # of the highest number of samples in a pack, if fewer are allowed
_INNER = (  # where a folder's vocabulary may be
    "0_Transformer",
    MODEL,  # room: from_text
    "checkpoints/step-*",
    "step-*",
)


class Measured(NamedTuple):
    """The numbers of tokens of all samples, without a limit: ``(N,)`` of those to train on, and of all others."""

    trained: np.ndarray
    others: np.ndarray

    @property
    def every(self) -> np.ndarray:
        return np.concatenate([self.trained, self.others])


def fitted(loaded: LoadedConfig, fetch: bool) -> LoadedConfig:
    """Return the config with rows as long as its data need, several samples in a row where that pays.

    A length or packs that are set, and those of the published program's configs, stay. So do the rows of tasks whose
    texts are cut into windows, of random data and on IPUs. ``rows`` of the result says what was chosen, and ``found``
    how many rows there are.
    """
    config, task = loaded.config, loaded.task
    # Packs that are set have rows of the default length.
    is_open = loaded.origins[LENGTH] == DEFAULT and config.packing.max_sequences_per_pack is None
    if task not in (CLASSIFICATION, TOKEN_CLASSIFICATION, SENTENCE_EMBEDDING) or not is_open:
        return loaded
    if config.generated_dataset or config.runs_on_ipus:
        return loaded
    if config.resume:
        begun = _as_begun(loaded)
        if begun is not None:
            return begun
    folder = _weights_folder(config.weights, config.weights_key, fetch)
    positions = _positions(known_architecture(config, task), folder)
    tokenizer = _tokenizer(config.vocab_file, config.lower_case, folder)
    with _quiet():
        samples = None if tokenizer is None else read_samples(config, task, fetch)
    if positions is None or tokenizer is None or samples is None or not any(samples):
        later = f"as long as the longest sample; unknown until {'the data' if tokenizer else 'the vocabulary'} is read"
        return dataclasses.replace(loaded, rows=f"{config.max_seq_length} tokens" if fetch else later)
    measured = _measured(samples, task, tokenizer)
    length, shown = fitting_length(measured.every, positions)
    values: Dict[str, Any] = {LENGTH: length}
    factor = 1.0
    # The losses of sentence embeddings compare all samples of a micro batch, and a rate may follow its rows.
    follows_rows = config.optimizer_opts.learning_rate.reference_global_batch is not None
    may_pack = loaded.origins[SEQUENCES] == DEFAULT and task != SENTENCE_EMBEDDING and not follows_rows
    if config.do_training and may_pack:
        packs = fitting_packs(np.minimum(measured.trained, length), length, config.global_batch.micro_batch_size)
        if packs is not None:
            values.update({SEQUENCES: packs.sequences, BETAS: False, MICRO_BATCH: packs.rows})
            factor = packs.factor
            shown += f"; {packs.shown(config.global_batch.micro_batch_size)}"
    found = (round(measured.trained.size / factor), factor) if samples.trained else None
    return dataclasses.replace(_with(loaded, values, shown), found=found)


def fitting_length(lengths: np.ndarray, positions: int) -> Tuple[int, str]:
    """Return the least length that cuts nothing, up to a model's positions, and what to say about it."""
    longest = int(lengths.max())
    length = min(-(-longest // MULTIPLE) * MULTIPLE, positions)
    cut = int(np.sum(lengths > length))
    ending = f"{cut:,} ({cut / lengths.size:.1%}) {'is' if cut == 1 else 'are'} cut" if cut else "none is cut"
    return length, f"{length:,} tokens for the longest of {lengths.size:,} samples, {longest:,}; {ending}"


class FittingPacks(NamedTuple):
    """Packs that pay: most samples in one, packs of a micro batch, and the mean number of samples in one."""

    sequences: int
    rows: int
    factor: float

    def pays(self, micro_batch_size: int) -> bool:
        """Return whether they save enough, and an update has about as many samples as without packs."""
        rounding = abs(self.rows * self.factor / micro_batch_size - 1)
        return self.factor >= LEAST_FACTOR and rounding <= MOST_ROUNDING

    def shown(self, micro_batch_size: int) -> str:
        """Return what the packs save, and how many samples a micro batch has."""
        saved = f"{1 - 1 / self.factor:.0%} of the rows and products saved"
        instead = f"a micro batch, instead of {micro_batch_size} rows"
        packs = f"{self.rows} packs of {self.factor:.2f} samples are {instead}"
        return f"up to {self.sequences} samples in a pack, {saved}; {packs}"


def fitting_packs(lengths: np.ndarray, length: int, micro_batch_size: int) -> Optional[FittingPacks]:
    """Return packs of samples of ``lengths`` ``(N,)`` tokens in rows of a length; None if they do not pay.

    A row costs the same whatever is in it. An update keeps its number of samples, so that packs whose number in a
    micro batch would be rounded much are left out. The ``micro_batch_size`` is that without packs.
    """
    counts = np.bincount(lengths, minlength=length + 1)[1:]
    most = min(MOST_SEQUENCES, length // int(lengths.min()))
    quick = (_packs(counts, length, sequences, micro_batch_size, QUICK) for sequences in range(2, most + 1))
    found = [packs for packs in quick if packs.pays(micro_batch_size)]
    enough = ENOUGH * max((packs.factor for packs in found), default=0.0)
    sequences = next((packs.sequences for packs in found if packs.factor >= enough), None)
    if sequences is None:
        return None
    as_made = _packs(counts, length, sequences, micro_batch_size, DEFAULT_ALGORITHM)
    if not as_made.pays(micro_batch_size):  # these are fuller; with fewer sequences, a micro batch has not too many
        rows = math.ceil(micro_batch_size / as_made.factor)
        sequences = int((1 + MOST_ROUNDING) * micro_batch_size / rows)
        as_made = _packs(counts, length, sequences, micro_batch_size, DEFAULT_ALGORITHM)
    return as_made if as_made.pays(micro_batch_size) else None


def _packs(counts: np.ndarray, length: int, sequences: int, micro_batch_size: int, algorithm: str) -> FittingPacks:
    factor = plan_packing(counts, length, sequences, algorithm).packing_factor
    return FittingPacks(sequences, max(1, round(micro_batch_size / factor)), factor)


def _with(loaded: LoadedConfig, values: Dict[str, Any], shown: str) -> LoadedConfig:
    origins = {**loaded.origins, **dict.fromkeys(values, DATA)}
    return dataclasses.replace(loaded, config=with_values(loaded.config, values), origins=origins, rows=shown)


def _as_begun(loaded: LoadedConfig) -> Optional[LoadedConfig]:
    """Return the config with the rows of the run to resume, which are not chosen again; None if no file has them."""
    path = Path(loaded.config.output_dir) / str(loaded.config.name) / RESOLVED
    try:
        content = read_json_object(path)
        chosen = [name for name in (LENGTH, SEQUENCES, BETAS, MICRO_BATCH) if content["origins"].get(name) == DATA]
        values = {name: value_at(content["config"], name) for name in (LENGTH, *chosen)}
        begun = with_values(loaded.config, {LENGTH: TrainingConfig(**{LENGTH: values[LENGTH]}).max_seq_length})
    except (UserError, OSError, KeyError, TypeError, AttributeError, ValueError):  # whoever resumes the run reports it
        return None
    loaded = dataclasses.replace(loaded, config=begun)
    return _with(loaded, values, f"{begun.max_seq_length} tokens, as the run was begun") if chosen else loaded


def _weights_folder(weights: Optional[str], key: str, fetch: bool) -> Optional[Path]:
    """Return the folder of the weights to start from; None if there is none on this machine."""
    if weights is None:
        return None
    path = Path(weights)
    if fetch and key == "bert_model_name" and not os.path.exists(path) and is_model_name(str(path)):
        return fetch_model(str(path), key)
    folder = path if os.path.isdir(path) else path.parent  # unlike Path.is_dir, no error for a name that is too long
    inner = sorted(chain.from_iterable(map(folder.glob, _INNER)))
    return next((each for each in (folder, *inner) if find_vocabulary(each) is not None), folder)


def _positions(known: Optional[Architecture], folder: Optional[Path]) -> Optional[int]:
    """Return the number of the model's positions; None if the weights must be opened to know it."""
    if known is not None:
        return known.max_position_embeddings
    stated = stated_in(folder).get("max_position_embeddings") if folder is not None else None
    return stated if type(stated) is int else None


def _tokenizer(vocab_file: Optional[str], lower_case: Optional[bool], folder: Optional[Path]) -> Optional[Tokenizer]:
    """Return the tokenizer of the run; None if there is none here, which whoever opens the weights reports."""
    path = Path(vocab_file) if vocab_file else None if folder is None else find_vocabulary(folder)
    if path is None:
        return None
    try:
        vocabulary = read_vocabulary(path)
        given = vocabulary.lower_case if vocab_file else None
        lower_case = vocabulary.lowers_case(lower_case, given, None if folder is None else _lower_case(folder))
    except (UserError, OSError):
        return None
    return make_tokenizer(vocabulary, lower_case, special_tokens=True)


def _lower_case(folder: Path) -> Optional[bool]:
    """Return whether weights read lower-cased text, as the files in their folder say; None if these do not."""
    description = folder / DESCRIPTION
    if description.is_file():
        stated: Optional[bool] = read_json_object(description).get("lower_case")
        return stated
    return find_lower_case(folder, read_tokenizer_files(find_vocabulary(folder) or folder / VOCABULARY_NAME))


def _measured(samples: Samples, task: str, tokenizer: Tokenizer) -> Measured:
    """Return the numbers of tokens of all samples, special ones included."""
    if task == TOKEN_CLASSIFICATION:
        known = list({word for words in chain(*samples) for word in words})
        pieces = tokenizer.encode_batch_fast(known, add_special_tokens=False)
        number = {word: len(encoding.ids) or 1 for word, encoding in zip(known, pieces)}
        counts = [[sum(map(number.__getitem__, words)) + 2 for words in sentences] for sentences in samples]
        return Measured(*(np.array(each, np.int64) for each in counts))
    return Measured(*(_token_counts(tokenizer, texts, task == SENTENCE_EMBEDDING) for texts in samples))


def _token_counts(tokenizer: Tokenizer, texts: Sequence[Sequence[str]], separate: bool) -> np.ndarray:
    """Return the number of tokens of each sample, special ones included; ``separate`` texts have [CLS] each."""
    counts: List[int] = []
    for begin in range(0, len(texts), CHUNK):
        chunk = texts[begin : begin + CHUNK]
        encodings = tokenizer.encode_batch_fast(list(chain.from_iterable(chunk)), add_special_tokens=False)
        pieces = iter([len(encoding.ids) for encoding in encodings])
        for sample in chunk:
            special = 2 * len(sample) if separate else len(sample) + 1
            counts.append(special + sum(itertools.islice(pieces, len(sample))))
    return np.array(counts, np.int64)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within the block, what is read logs nothing: the run reads it again, and then says what it found."""
    logger = logging.getLogger("data_utils")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
