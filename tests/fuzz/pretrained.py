"""Mutated checkpoints of other projects: safetensors, PyTorch's, Keras' and Google's files with their configs.

Two of the formats have checksums, so only saved values may be read from them. The others do not, so damage within the
numbers cannot be detected; there, only those numbers may differ.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from checkpoints.pretrained.opening import open_pretrained
from model.tasks import PRETRAINING
from tests.fuzz.damage import PATH_DAMAGE, Damage, apply, draw_bytes, draw_json, list_keys
from tests.fuzz.harness import ACCEPTED, REFUSED, WrongError, check_line
from tests.support.bert_pairs import architecture
from tests.support.checkpoint_writers import google, hdf5, pytorch_bin, safetensors, sharded_safetensors
from tests.support.hf_models import build_hf_model, hugging_face
from tests.support.pytorch_names import pytorch_arrays
from utilities.errors import UserError
from utilities.secrets import shown_line

WRITERS = {"safetensors": safetensors, "parts": sharded_safetensors, "bin": pytorch_bin, "h5": hdf5, "google": google}
CHECKED = ("bin", "google")  # zip and TensorFlow's tables contain CRC-32s
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
ATTACKS = (
    b"cos\nsystem\n(X\x0a\x00\x00\x00touch hitstR.",
    b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
    b"\x80\x02}(X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n)Ru.",
    b"\x80\x02" + b"(" * 5000 + b"." + b"t" * 5000,
)


class Pretrained:
    """One small BERT in every format."""

    name = "pretrained"

    def __init__(self, folder: Path) -> None:
        self._good, self._folder = folder / "good", folder / "changed"
        source = hugging_face(PRETRAINING)
        self._expected = pytorch_arrays(source)
        self._target = build_hf_model(PRETRAINING, architecture())
        self._files: dict[str, list[str]] = {}
        self._others: dict[str, bytes] = {}
        self._keys: dict[str, list[tuple]] = {}
        for kind, write in WRITERS.items():
            folder = write(source, self._good / kind)
            self._files[kind] = sorted(path.name for path in folder.iterdir())
            for name in self._files[kind]:
                self._others[f"{kind}/{name}"] = (folder / name).read_bytes()
                if name.endswith(".json"):
                    self._keys[f"{kind}/{name}"] = list_keys(json.loads((folder / name).read_text()))

    def draw(self, chance: random.Random) -> list[Damage]:
        kind = chance.choice(list(WRITERS))
        return [("format", kind), *(self._one(chance, kind) for _ in range(chance.choice([1, 1, 1, 2])))]

    def _one(self, chance: random.Random, kind: str) -> Damage:
        name = chance.choice(self._files[kind])
        what = chance.choices(["bytes", "start", "json", "path", "attack"], [4, 3, 4, 2, 1])[0]
        if what == "bytes":
            return draw_bytes(chance, f"{kind}/{name}")
        if what == "start":  # the part with headers
            damage = draw_bytes(chance, f"{kind}/{name}")[:2]
            return (*damage, chance.random() / 50, chance.choice([1, 8]), chance.randrange(256))
        if what == "json":
            file = chance.choice([key for key in self._keys if key.startswith(f"{kind}/")])
            return draw_json(chance, file, self._keys[file])
        if what == "attack":
            return (what, f"{kind}/{name}", chance.randrange(len(ATTACKS)))
        return (chance.choice(PATH_DAMAGE), f"{kind}/{name}", chance.choice(sorted(self._others)))

    def attempt(self, mutations: Sequence[Damage]) -> str:
        (_, kind), *damages = mutations
        folder = self._folder / kind
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._good / kind, folder)
        for damage in damages:
            if damage[0] == "attack":
                self._attack(damage)
            else:
                apply(self._folder, damage, self._others)

        try:
            start = open_pretrained(str(folder), "pretrained_ckpt_path")
            ours = {name: getattr(architecture(), name) for name in SIZES}
            if any((start.architecture or {}).get(name, size) != size for name, size in ours.items()):
                return REFUSED  # another model would be built, and the trainer compares its sizes with the weights
            start.set_initial_weights(self._target)
        except UserError as error:
            check_line(shown_line(str(error)), lambda line: str(self._folder) in line or "pretrained_ckpt_path" in line)
            return REFUSED
        self._check(start.report.missing, kind, len(mutations))
        return ACCEPTED

    def _attack(self, mutation: Damage) -> None:
        path = self._folder / mutation[1]
        if path.is_file():
            path.write_bytes(ATTACKS[mutation[2]])

    def _check(self, missing: Sequence[str], kind: str, mutations: int) -> None:
        result = pytorch_arrays(self._target)
        different = [
            name
            for name, array in self._expected.items()
            if name not in missing and not np.array_equal(result[name], array)
        ]
        if different and kind in CHECKED:
            raise WrongError(f"{kind}: {different[:3]} are not what was saved")
        if len(different) > 4 * mutations:
            raise WrongError(f"{kind}: {len(different)} weights are not what was saved, such as {different[:3]}")
