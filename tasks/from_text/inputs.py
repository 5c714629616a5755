"""What is known before anything is decided: the text, from its beginning, and the machine."""

from __future__ import annotations

import hashlib
import importlib.util
import unicodedata
from collections import Counter
from typing import List, NamedTuple, Optional, Tuple

from data_utils.text.first_look import LONGEST_LOOK, look
from data_utils.text.readers import RejectedDocument
from data_utils.text.sentences import is_too_short
from data_utils.text.sources import Source
from utilities.environment import fast_bfloat16, memory_bytes, nvidia_gpus, usable_cores
from utilities.errors import UserError

SAMPLE_CHARACTERS = 2_000_000  # read in less than a second
SCRIPT_CHARACTERS = 100_000  # of the sample, whose scripts are counted
IDEOGRAPHS = "CJK"  # the script of which BERT makes each character a word
UNSPACED = (IDEOGRAPHS, "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")  # no blanks between words
SIGNS_OF_CODE = "{}()[]<>=;_/\\#*&|+"
CODE_SHARE = 0.06  # of these signs among the characters that are not white space; prose has 0.00 to 0.04
DUMP_SHARE = 0.5  # of a compressed dump's bytes, the text of its articles


class Text(NamedTuple):
    """A text; counts are estimated from its beginning where it is longer than the sample.

    Attributes:
        megabytes: of UTF-8, decompressed, in millions of bytes.
        words: separated by white space; of scripts without blanks, characters.
        documents: between blank lines, or as the format has them.
        repeated: share of the sample's documents that the sample has before.
        script: the most frequent one of the letters, as Unicode names it, such as ``LATIN``.
        is_whole: whether all of it was read, so that nothing is estimated.
        files: of the input; 0 if it is not in files.
        left_out: documents that are too short, which are not among ``documents``.
        notes: what the user may not have meant, a sentence each.
    """

    megabytes: float
    words: int
    documents: int
    repeated: float
    script: str
    is_code: bool
    is_whole: bool
    files: int = 0
    left_out: int = 0
    notes: Tuple[str, ...] = ()

    def part(self, share: float) -> Text:
        """Return a share of the documents."""
        counts = {name: round(share * getattr(self, name)) for name in ("words", "documents")}
        return self._replace(megabytes=share * self.megabytes, **counts)

    @property
    def size(self) -> str:
        """The bytes with their unit."""
        return f"{self.megabytes:,.1f} MB" if self.megabytes >= 0.1 else f"{1000 * self.megabytes:,.1f} kB"

    def described(self) -> str:
        """Return it in one line."""
        about = "" if self.is_whole else "about "
        kind = "source code" if self.is_code else self.script.capitalize()
        units = "characters" if self.script in UNSPACED else "words"
        files = f" in {self.files:,} files" if self.files > 1 else ""
        short = f" ({self.left_out:,} more are too short)" if self.left_out else ""
        documents = f"{self.documents:,} documents{files}{short}"
        counts = f"{about}{self.size}, {self.words:,} {units}, {documents}, {kind}"
        return f"{counts}, {self.repeated:.0%} of the documents repeated" if self.repeated >= 0.005 else counts


class Measured(NamedTuple):
    """What the timing of some updates has shown.

    The ``speed`` is a multiple of that of two cores of a Zen 4 in bfloat16. A training takes ``start`` seconds before
    its first update, TensorFlow's import aside; all that is neither preparation nor training takes ``around`` seconds.
    """

    speed: float
    start: float
    around: float


class Machine(NamedTuple):
    """A machine.

    Attributes:
        cores: that this process may use.
        bfloat16: the instruction set by which the processor multiplies bfloat16 matrices fast; empty if there is none.
        memory_gib: memory, or the container's; None if unknown.
        gpu: name of the first NVIDIA GPU that TensorFlow can use; empty if there is none.
        note: what the user may want to know about a GPU that is not used.
        measured: what is known instead of guessed.
    """

    cores: int
    bfloat16: str
    memory_gib: Optional[float]
    gpu: str
    note: str
    measured: Optional[Measured] = None

    @property
    def core_speed(self) -> float:
        """Return how fast a core trains, compared with a Zen 4 in bfloat16; float32 was measured on a Zen 3."""
        return 1.0 if self.bfloat16 or self.gpu else 0.41

    @property
    def speed(self) -> float:
        """Return the speed of training, as a multiple of that of two cores of a Zen 4 in bfloat16.

        Measured with two cores, and on one H100 with 2 layers × 192. All else is a guess, which decides the size of a
        model until some updates are timed.
        """
        if self.measured is not None:
            return self.measured.speed
        return 31.0 if self.gpu else self.core_speed * min(self.cores, 16) / 2

    @property
    def start_seconds(self) -> float:
        """Return the seconds from TensorFlow's import to the first real update, and those after the last one.

        XLA compiles for a GPU three times, 15 to 25 seconds each on an H100.
        """
        if self.measured is not None:
            return self.measured.around
        return 90.0 if self.gpu else 10 + 25 / self.core_speed

    @property
    def precision(self) -> str:
        """Return the number format of the training, which stays the same if another processor continues it."""
        return "auto" if self.gpu else "mixed_bfloat16" if self.bfloat16 else "float32"

    def described(self) -> str:
        """Return it in one line."""
        memory = "" if self.memory_gib is None else f", {self.memory_gib:,.0f} GiB of memory"
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        formats = f"bfloat16 ({self.bfloat16})" if self.bfloat16 else "no fast bfloat16"
        return f"{self.gpu}, {cores}{memory}" if self.gpu else f"{cores}, {formats}{memory}, no GPU"


def look_at_text(source: Source, min_characters: int, strips_marks: bool = False) -> Text:
    """Read the beginning of a text, without short documents; ``strips_marks``: accents will be stripped."""
    if source.kind["kind"] == "dump":  # the articles are extracted later, by another program
        megabytes = DUMP_SHARE * source.files[0].stat().st_size / 1e6
        return Text(megabytes, int(megabytes * 160_000), int(megabytes * 300), 0.0, "LATIN", False, False)
    unread = ""
    first: List[str] = []
    texts: List[str] = []
    length = position = left_out = 0
    is_whole = True
    for document, position in source.read():  # noqa: B007 (used after the loop)
        if isinstance(document, RejectedDocument):
            unread = unread or document.reason
        elif document.text.strip():
            if length < LONGEST_LOOK:
                first.append(document.text)
            length += len(document.text)
            if is_too_short(document, min_characters):
                left_out += 1
            else:
                texts.append(document.text)
        if length >= SAMPLE_CHARACTERS:
            is_whole = False
            break
    notes = look(first, source.kind, len(source.files), strips_marks)
    if not texts and left_out:
        raise UserError(
            f"none of the documents has {min_characters} characters; --min-characters 1 keeps short ones, too"
        )
    if not texts and unread:
        raise UserError(f"none of the documents can be used; the first: {unread}")
    if not texts:
        raise UserError("the text is empty: there is no document in it")
    scale = 1.0
    if not is_whole and source.total_bytes is not None:
        scale = max(1.0, source.total_bytes / max(position, 1))
    text = _estimated(texts, scale, is_whole)
    return text._replace(files=len(source.files), left_out=int(scale * left_out), notes=tuple(notes))


def _estimated(texts: List[str], scale: float, is_whole: bool) -> Text:
    """Return the text of a sample, whose counts are multiplied by ``scale``."""
    beginning = "".join(text[: SCRIPT_CHARACTERS // 20] for text in texts[:100])[:SCRIPT_CHARACTERS]
    script = _script(beginning)
    visible = [character for character in beginning if not character.isspace()]
    signs = sum(character in SIGNS_OF_CODE for character in visible)
    counted = sum(len(text) if script in UNSPACED else len(text.split()) for text in texts)
    digests = {hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() for text in texts}
    return Text(
        megabytes=scale * sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6,
        words=int(scale * counted),
        documents=int(scale * len(texts)),
        repeated=1 - len(digests) / len(texts),
        script=script,
        is_code=signs > CODE_SHARE * len(visible),
        is_whole=is_whole,
    )


def _script(text: str) -> str:
    """Return the script of most letters, the first word of their Unicode names; empty if there is no letter."""
    scripts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha())
    return scripts.most_common(1)[0][0] if scripts else ""


def look_at_machine() -> Machine:
    memory = memory_bytes()
    gpu, note = _gpu()
    return Machine(usable_cores(), fast_bfloat16(), None if memory is None else memory / 2**30, gpu, note)


def _gpu() -> Tuple[str, str]:
    """Return the name of the GPU to train on, or an empty name and why there is none, if there could be one."""
    gpus = nvidia_gpus()
    name = gpus[0].name if gpus else ""
    if name and importlib.util.find_spec("nvidia") is None:
        return "", f"{name} is not used: TensorFlow's libraries for it are not installed (make venv CUDA=1)"
    return name, ""
