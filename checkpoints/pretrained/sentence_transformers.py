"""The files by which sentence-transformers knows how a model makes embeddings: reads and writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from checkpoints.pretrained.pretrained import Pretrained
from data_utils.tokenizer_files import SETTINGS_NAME
from model.tasks import SENTENCE_EMBEDDING
from utilities.errors import UserError
from utilities.files import parse_json, read_json_object
from utilities.tables import read_text

MODULES, LENGTH = "modules.json", "sentence_bert_config.json"
POOLING_MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
PROMPTS = "config_sentence_transformers.json"
SHORTEST = 3  # tokens: [CLS], one of the text, [SEP]
ENCODER_FOLDER = "0_Transformer"  # of the module Transformer in models of earlier versions
_MODE = "pooling_mode_"
_FOLDERS = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}  # of the modules


class EmbeddingSettings(NamedTuple):
    """How a model makes the embedding of a text.

    Attributes:
        pooling: ``mean`` or ``cls``.
        normalize: whether embeddings are scaled to length 1.
        length: tokens of a text at most; None if unknown.
    """

    pooling: str = "mean"
    normalize: bool = False
    length: Optional[int] = None


def embedding_settings(start: Pretrained) -> Optional[EmbeddingSettings]:
    """Return the settings of a checkpoint; None if it was not trained for embeddings, as far as is known.

    Raises:
        UserError: the checkpoint is a folder of sentence-transformers with unknown modules, or an unknown pooling.
    """
    if start.own:
        if start.settings.get("task") != SENTENCE_EMBEDDING:
            return None
        config = start.settings.get("config") or {}
        pooling = (config.get("embedding") or {}).get("pooling", EmbeddingSettings().pooling)
        return EmbeddingSettings(pooling, length=config.get("max_seq_length"))
    if start.folder is None or not (start.folder / MODULES).is_file():
        return None
    modules = _read_modules(start.folder / MODULES)
    _refuse_prompt(start.folder / PROMPTS)
    encoder = start.folder / modules["Transformer"]
    pooling, path = EmbeddingSettings().pooling, encoder / LENGTH
    if "Pooling" in modules:
        pooling = _read_pooling(start.folder / modules["Pooling"] / "config.json")
    # Newer versions of sentence-transformers leave the length to the tokenizer, whose number may be huge.
    places = ((path, "max_seq_length"), (encoder / SETTINGS_NAME, "model_max_length"))
    found = [read_json_object(file).get(name) for file, name in places if file.is_file()]
    lengths = [min(length, start.architecture["max_position_embeddings"]) for length in found if type(length) is int]
    if lengths and lengths[0] < SHORTEST:
        raise UserError(f"{path}: texts have at most {lengths[0]} tokens, but {SHORTEST} are needed; download it again")
    return EmbeddingSettings(pooling, "Normalize" in modules, lengths[0] if lengths else None)


def _refuse_prompt(path: Path) -> None:
    """Refuse a model that puts a prompt before each text unless the user says otherwise."""
    settings = read_json_object(path) if path.is_file() else {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    prompt = prompts.get(name) if isinstance(prompts, dict) else None
    if name is not None and prompt != "":
        raise UserError(
            f"{path}: default_prompt_name {name} puts {prompt!r} before each text, which is not done here; put it into"
            " your texts, and set default_prompt_name to null"
        )


def _read_modules(path: Path) -> Dict[str, str]:
    """Return the folder of each module by its kind."""
    try:
        modules = {module["type"].rsplit(".", 1)[-1]: str(module["path"]) for module in parse_json(read_text(path))}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is not a list of modules ({error}); download it again") from error
    if "Transformer" not in modules:
        raise UserError(f"{path}: has no module Transformer; download it again")
    unknown = [kind for kind in modules if kind not in _FOLDERS]
    if unknown:
        raise UserError(f"{path}: has a module {unknown[0]}, known are {', '.join(_FOLDERS)}; name another model")
    return modules


def _read_pooling(path: Path) -> str:
    config = read_json_object(path)
    modes = [name for name, is_on in config.items() if name.startswith(_MODE) and is_on is True]
    chosen = config.get("pooling_mode", modes)  # a name or several, since newer versions of sentence-transformers
    for pooling, mode in POOLING_MODES.items():
        if chosen in (pooling, [pooling], [mode]):
            return pooling
    known = " and ".join(POOLING_MODES)
    raise UserError(f"{path}: pools by {chosen or 'nothing'}, known are {known}; name another model")


def write_modules(folder: Path, settings: EmbeddingSettings, hidden_size: int) -> None:
    """Write the files with which sentence-transformers loads a Hugging Face folder."""
    kinds = [kind for kind in _FOLDERS if kind != "Normalize" or settings.normalize]
    modules: List[Dict[str, Any]] = [
        {"idx": number, "name": str(number), "path": _FOLDERS[kind], "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    modes = {mode: name == settings.pooling for name, mode in POOLING_MODES.items()}
    files = {
        MODULES: modules,
        LENGTH: {"max_seq_length": settings.length, "do_lower_case": False},  # the tokenizer lower-cases
        f"{_FOLDERS['Pooling']}/config.json": {"word_embedding_dimension": hidden_size, **modes},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
