"""Mutated TFRecord, index and manifest files. Records must equal those that TensorFlow reads from the same files."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_utils.records.index import build_index
from data_utils.records.reader import RecordReader
from keras_extensions.backend import tf
from tests.fuzz.damage import PATH_DAMAGE, Damage, apply, draw_bytes, draw_json, list_keys
from tests.fuzz.harness import ACCEPTED, REFUSED, WrongError, check_line
from tests.support.record_samples import example, sample, spec, write, write_manifest, write_samples
from utilities.errors import UserError
from utilities.secrets import shown_line

COUNTS = {"a.tfrecord": 6, "b.tfrecord": 5}
FEATURES = tuple(feature.name for feature in spec().features)
ODD: tuple[Any, ...] = (
    None, [], [0], [-1] * 16, [49] * 16, [50] * 16, [2**40] * 16, [1.0] * 16, [float("nan")] * 3, [-1.0] * 3,
    [b"x"] * 16, [0, 0, 0], [15, 16, 3], [1], [2], [0.0, 0.0, 0.0], [float("inf"), 0.0, 1.0],
)  # fmt: skip


class Records:
    """A data set of two files, with or without indices and manifest."""

    name = "records"

    def __init__(self, folder: Path) -> None:
        self._good = folder / "good"
        self._folder = folder / "data"
        self._good.mkdir(parents=True)
        first = 0
        for name, count in COUNTS.items():
            write_samples(self._good / name, range(first, first + count))
            build_index(self._good / name)
            first += count
        sums = {name: hashlib.sha256((self._good / name).read_bytes()).hexdigest() for name in COUNTS}
        files = [
            {"name": name, "records": count, "bytes": (self._good / name).stat().st_size, "sha256": sums[name]}
            for name, count in COUNTS.items()
        ]
        write_manifest(self._good, {}, files=files, totals={"records": sum(COUNTS.values())})
        self._others = {path.name: path.read_bytes() for path in self._good.iterdir()}
        self._others["gzip"] = b"\x1f\x8b\x08\0" + bytes(100)
        self._keys = list_keys(json.loads(self._others["manifest.json"]))

    def draw(self, chance: random.Random) -> list[Damage]:
        drawn: list[Damage] = []
        drawn += [("without", "manifest.json")] * (chance.random() < 0.5)
        drawn += [("without", f"{name}.index") for name in "ab" if chance.random() < 0.4]
        drawn += [("verify", "")] * (chance.random() < 0.2)
        return drawn + [self._one(chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))]

    def _one(self, chance: random.Random) -> Damage:
        kind = chance.choices(["bytes", "record", "json", "path", "index", "swap"], [8, 4, 3, 2, 2, 1])[0]
        name = chance.choice(list(COUNTS))
        if kind == "bytes":
            return draw_bytes(chance, chance.choice([name, name, name.replace("tfrecord", "index"), "manifest.json"]))
        if kind == "record":
            return (kind, name, chance.randrange(5), chance.choice(FEATURES), chance.choice(ODD))
        if kind == "json":
            return draw_json(chance, "manifest.json", self._keys)
        if kind == "path":
            target = chance.choice(sorted(self._others.keys() - {"gzip"}))
            return (chance.choice(PATH_DAMAGE), target, chance.choice(sorted(self._others)))
        if kind == "index":
            return (kind, name.replace("tfrecord", "index"), chance.choice(["swap", "join", "shift", "blank"]))
        return (kind, name, chance.randrange(5), chance.randrange(5))

    def attempt(self, mutations: Sequence[Damage]) -> str:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._good, self._folder)
        for mutation in mutations:
            self._apply(mutation)
        verify = ("verify", "") in mutations
        try:
            reader = RecordReader(self._folder, spec(), verify_checksums=verify)
            result = reader.read(np.arange(reader.count))
        except UserError as error:
            check_line(shown_line(str(error)), lambda line: str(self._folder) in line and "; " in line)
            return REFUSED
        self._check(result, reader.count, verify)
        return ACCEPTED

    def _apply(self, mutation: Damage) -> None:
        kind, name = mutation[:2]
        path = self._folder / name
        if kind == "verify":
            return
        if not path.is_file():
            return
        if kind == "without":
            path.unlink()
        elif kind == "record":
            rewrite(path, mutation)
        elif kind == "swap":
            swap(path, mutation)
        elif kind == "index":
            path.write_bytes(changed_index(path.read_bytes(), mutation[2]))
        else:
            apply(self._folder, mutation, self._others)

    def _check(self, result: dict[str, np.ndarray], count: int, verified: bool) -> None:
        """Compare the records with those of TensorFlow's own reader of the same files."""
        paths = sorted(path for path in self._folder.glob("*.tfrecord"))
        expected = read_by_tensorflow(paths)
        manifest = self._folder / "manifest.json"
        if manifest.exists():
            content = json.loads(manifest.read_text(encoding="utf-8"))
            promised = sum(entry["records"] for entry in content["files"])
            if promised != count:
                raise WrongError(f"{count} records were read, the manifest has {promised}")
        if verified and any(
            path.read_bytes() != self._others[path.name] for path in paths if path.name in self._others
        ):
            listed = {entry["name"]: entry.get("sha256") for entry in content["files"]}
            for path in paths:
                if listed.get(path.name) not in (None, hashlib.sha256(path.read_bytes()).hexdigest()):
                    raise WrongError(f"{path.name} was changed, and its checksum verified")
        for name in FEATURES:
            if result[name].shape != expected[name].shape or not np.array_equal(result[name], expected[name]):
                raise WrongError(f"{name} is not what TensorFlow reads")
        check_values(result)


def read_by_tensorflow(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Return all records of files, parsed by TensorFlow."""
    form = {
        feature.name: tf.io.FixedLenFeature([feature.length], tf.float32 if feature.below is None else tf.int64)
        for feature in spec().features
    }
    try:
        payloads = list(tf.data.TFRecordDataset([str(path) for path in paths]).as_numpy_iterator())
        parsed = tf.io.parse_example(tf.constant(payloads), form)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        raise WrongError(f"TensorFlow refuses these files: {str(error)[:200]}") from error
    return {name: values.numpy() for name, values in parsed.items()}


def check_values(result: dict[str, np.ndarray]) -> None:
    for feature in spec().features:
        values = result[feature.name]
        top = np.inf if feature.below is None else feature.below
        if not (np.all(np.isfinite(values)) and np.all(values >= 0) and np.all(values < top)):
            raise WrongError(f"{feature.name} has values out of range")


def read_payloads(path: Path) -> list[bytes]:
    """Return the records of a file; none if it is damaged."""
    try:
        return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    except tf.errors.OpError:
        return []


def rewrite(path: Path, mutation: Damage) -> None:
    """Change one feature of a record, with correct checksums."""
    _, _, number, feature, value = mutation
    payloads = read_payloads(path)
    if number < len(payloads):
        payloads[number] = example(sample(number, **{feature: value}))
        write(path, payloads)


def swap(path: Path, mutation: Damage) -> None:
    _, _, one, two = mutation
    payloads = read_payloads(path)
    if max(one, two) < len(payloads):
        payloads[one], payloads[two] = payloads[two], payloads[one]
        write(path, payloads)


def changed_index(data: bytes, how: str) -> bytes:
    """Return a changed index whose lines are still numbers."""
    lines = data.split(b"\n")
    if not all(len(line.split()) in (0, 2) and line.replace(b" ", b"").isdigit() for line in lines if line):
        return data  # no longer an index
    if how == "swap":
        lines[0], lines[1] = lines[1], lines[0]
    elif how == "join" and len(lines) > 2 and lines[0] and lines[1]:
        (first, one), (_, two) = lines[0].split(), lines[1].split()
        lines[:2] = [first + b" %d" % (int(one) + int(two))]
    elif how == "shift" and lines[0]:
        lines = [b" ".join(b"%d" % (int(n) + 16) for n in line.split()) for line in lines]
    else:
        lines = [line + b"\n" for line in lines]
    return b"\n".join(lines)
