"""The files by which sentence-transformers knows how a model embeds texts or scores pairs: reads and writes them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Union

from pydantic import ConfigDict, Field
from typing_extensions import Annotated, Literal

from checkpoints.folder import USUAL_LENGTH
from checkpoints.pretrained.model_folder import LENGTH, MODULES, PROMPTS
from checkpoints.pretrained.pretrained import Pretrained
from checkpoints.pretrained.weights import CLASSIFIER
from data_utils.tokenizer_files import SETTINGS_NAME
from model.tasks import SENTENCE_EMBEDDING
from utilities.errors import UserError
from utilities.files import parse_json
from utilities.tables import read_text
from utilities.validation import Strict, read_checked

POOLING_MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
NO_PROMPT = "none"  # in place of the name of a prompt
SHORTEST = 3  # tokens: [CLS], one of the text, [SEP]
ENCODER_FOLDER = "0_Transformer"  # of the module Transformer in models of earlier versions
_MODE = "pooling_mode_"
_FOLDERS = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}  # of the modules


class EmbeddingSettings(NamedTuple):
    """How a model embeds a text: pooling by ``mean`` or ``cls``, scaling, and most tokens of a text, if known."""

    pooling: str = "mean"
    normalize: bool = False
    length: Optional[int] = None


class Prompt(NamedTuple):
    """What is put before each text; its tokens may be pooled as those of the text are."""

    text: str = ""
    is_pooled: bool = True


class _Encoder(Strict):
    """``sentence_bert_config.json``."""

    max_seq_length: Optional[int] = None
    do_lower_case: bool = False
    transformer_task: Literal["feature-extraction"] = "feature-extraction"
    tokenizer_args: Annotated[Optional[Dict[str, Any]], Field(max_length=0)] = None
    config_args: Annotated[Optional[Dict[str, Any]], Field(max_length=0)] = None


class _Pooling(Strict):
    """The ``config.json`` of a module Pooling; since version 6 of sentence-transformers it names the mode."""

    model_config = ConfigDict(extra="allow")  # a field for each mode
    pooling_mode: Union[str, List[str], None] = None
    include_prompt: bool = True


class _Prompts(Strict):
    """``config_sentence_transformers.json``."""

    prompts: Optional[Dict[str, str]] = None
    default_prompt_name: Optional[str] = None
    model_type: Literal["SentenceTransformer", "CrossEncoder"] = "SentenceTransformer"
    truncate_dim: Optional[int] = None
    activation_fn: Optional[str] = None


def embedding_settings(start: Pretrained) -> Optional[EmbeddingSettings]:
    """Return the settings of a checkpoint; None if it was not trained for embeddings, as far as is known."""
    if start.native:
        if start.settings.get("task") != SENTENCE_EMBEDDING:
            return None
        config = start.settings.get("config") or {}
        section, usual = config.get("embedding") or {}, start.settings.get(USUAL_LENGTH)
        pooling, normalize = section.get("pooling") or "mean", bool(section.get("normalize"))
        return EmbeddingSettings(pooling, normalize, usual or config.get("max_seq_length"))
    if start.folder is None or not (start.folder / MODULES).is_file() or is_cross_encoder(start):
        return None
    cut = _prompts(start).truncate_dim
    if cut is not None:
        what = f"truncate_dim is {cut}, but embeddings are not cut here"
        raise UserError(f"{start.folder / PROMPTS}: {what}; remove it for those of the full width")
    modules = _read_modules(start.folder / MODULES)
    encoder = start.folder / modules["Transformer"]
    pooling, path = EmbeddingSettings().pooling, encoder / LENGTH
    if "Pooling" in modules:
        pooling = _pooling(start.folder / modules["Pooling"] / "config.json")
    # Newer versions of sentence-transformers leave the length to the tokenizer, whose number may be huge.
    settings = read_checked(path, _Encoder) if path.is_file() else _Encoder()
    if settings.do_lower_case and not start.lower_case:
        raise UserError(f"{path}: do_lower_case is true, but the tokenizer keeps capitals; set it in {SETTINGS_NAME}")
    length: Any = settings.max_seq_length
    if length is None:
        path, length = encoder / SETTINGS_NAME, start.longest_text
    if length is None:
        return EmbeddingSettings(pooling, "Normalize" in modules)
    if length < SHORTEST:
        raise UserError(f"{path}: texts have at most {length} tokens, but {SHORTEST} are needed; download it again")
    length = int(min(length, start.architecture["max_position_embeddings"]))
    return EmbeddingSettings(pooling, "Normalize" in modules, length)


def is_cross_encoder(start: Pretrained) -> bool:
    """Return whether a checkpoint is one of sentence-transformers that scores pairs of texts."""
    return _prompts(start).model_type == "CrossEncoder"


def output_activation(start: Pretrained) -> str:
    """Return the function that sentence-transformers applies to a classifier's outputs, ``Identity`` if it has none.

    It says so in one of several files; a cross-encoder that does not has ``Sigmoid`` for a single output.
    """
    section = start.settings.get("sentence_transformers") if not start.native else None
    said = (
        _prompts(start).activation_fn,
        section.get("activation_fn") if isinstance(section, dict) else None,
        start.settings.get("sbert_ce_default_activation_function"),
    )
    name = next((name for name in said if isinstance(name, str)), None)
    if name is None:
        scores = is_cross_encoder(start) and f"{CLASSIFIER}.bias" in start.weights
        name = "Sigmoid" if scores and start.weights[f"{CLASSIFIER}.bias"].shape == (1,) else "Identity"
    return name.rsplit(".", 1)[-1]


def _prompts(start: Pretrained) -> _Prompts:
    path = start.folder / PROMPTS if start.folder is not None and not start.native else None
    return read_checked(path, _Prompts) if path is not None and path.is_file() else _Prompts()


def embedding_prompt(start: Pretrained, name: Optional[str] = None) -> Prompt:
    """Return what a model of sentence-transformers puts before each text.

    ``name`` is that of one of the model's prompts, or ``none``; None: its default prompt, if it has one.
    """
    settings = _prompts(start)
    prompts = settings.prompts or {}
    if name == NO_PROMPT:
        return Prompt()
    if name is not None and name not in prompts:
        raise UserError(f"--prompt: the model has no prompt {name}; it has {', '.join([NO_PROMPT, *prompts])}")
    name = settings.default_prompt_name if name is None else name
    if name is not None and name not in prompts:
        path = (start.folder or Path()) / PROMPTS
        raise UserError(f"{path}: default_prompt_name is {name}, which is not among the prompts; download it again")
    prompt = "" if name is None else prompts[name]
    return Prompt(prompt, not prompt or start.folder is None or _includes_prompt(start.folder))


def _includes_prompt(folder: Path) -> bool:
    modules = _read_modules(folder / MODULES) if (folder / MODULES).is_file() else {}
    return (
        "Pooling" not in modules or read_checked(folder / modules["Pooling"] / "config.json", _Pooling).include_prompt
    )


def _read_modules(path: Path) -> Dict[str, str]:
    """Return the folder of each module by its kind."""
    try:
        listed = [(module["type"].rsplit(".", 1)[-1], str(module["path"])) for module in parse_json(read_text(path))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is not a list of modules ({error}); download it again") from error
    modules = dict(listed)
    unknown = [kind for kind in modules if kind not in _FOLDERS]
    if unknown:
        raise UserError(f"{path}: has a module {unknown[0]}, known are {', '.join(_FOLDERS)}; name another model")
    if "Transformer" not in modules:
        raise UserError(f"{path}: has no module Transformer; download it again")
    if [kind for kind, _ in listed] != [kind for kind in _FOLDERS if kind in modules]:
        raise UserError(f"{path}: has its modules in another order than {', '.join(_FOLDERS)}; name another model")
    return modules


def _pooling(path: Path) -> str:
    settings = read_checked(path, _Pooling)
    modes = [name for name, is_on in settings if name.startswith(_MODE) and is_on]
    chosen = modes if settings.pooling_mode is None else settings.pooling_mode
    for pooling, mode in POOLING_MODES.items():
        if chosen in (pooling, [pooling], [mode]):
            return pooling
    known = " and ".join(POOLING_MODES)
    raise UserError(f"{path}: pools by {chosen or 'nothing'}, known are {known}; name another model")


def copy_cross_encoder(start: Pretrained, folder: Path) -> None:
    """Copy the files with which sentence-transformers loads a cross-encoder, except its weights and tokenizer."""
    assert start.folder is not None
    for name in (MODULES, LENGTH, PROMPTS):
        if (start.folder / name).is_file():
            shutil.copyfile(start.folder / name, folder / name)


def write_modules(folder: Path, start: Pretrained, settings: EmbeddingSettings, hidden_size: int) -> None:
    """Write the files with which sentence-transformers loads a Hugging Face folder; prompts are those of ``start``."""
    kinds = [kind for kind in _FOLDERS if kind != "Normalize" or settings.normalize]
    modules: List[Dict[str, Any]] = [
        {"idx": number, "name": str(number), "path": _FOLDERS[kind], "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    pooling: Dict[str, Any] = {mode: name == settings.pooling for name, mode in POOLING_MODES.items()}
    if not start.native and start.folder is not None and not _includes_prompt(start.folder):
        pooling["include_prompt"] = False
    files = {
        MODULES: modules,
        LENGTH: {"max_seq_length": settings.length, "do_lower_case": False},  # the tokenizer lower-cases
        f"{_FOLDERS['Pooling']}/config.json": {"word_embedding_dimension": hidden_size, **pooling},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if not start.native and start.folder is not None and (start.folder / PROMPTS).is_file():
        shutil.copyfile(start.folder / PROMPTS, folder / PROMPTS)
