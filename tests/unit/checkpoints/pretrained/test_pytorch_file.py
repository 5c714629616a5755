"""PyTorch's files are read without PyTorch and without running anything that is pickled in them."""

from __future__ import annotations

import contextlib
import copyreg
import os
import pickle
import pickletools
import random
import zipfile

import ml_dtypes
import numpy as np
import pytest

from checkpoints.pretrained import pytorch_file
from checkpoints.pretrained.pytorch_file import open_pytorch_file
from tests.support.checkpoint_writers import numbers, tensor, text, whole, write_bin
from utilities.errors import UserError


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "whole": random.normal(size=(3, 4)).astype(np.float32),
        "half": random.normal(size=(5,)).astype(np.float16),
        "brain": random.normal(size=(2, 2)).astype(ml_dtypes.bfloat16),
        "buffer": np.arange(4, dtype=np.int64)[None],
    }


@pytest.mark.parametrize("ordered", [False, True])
def test_numbers_of_every_type(ordered, tmp_path):
    write_bin(tmp_path / "pytorch_model.bin", arrays(), ordered=ordered)
    result = open_pytorch_file(tmp_path / "pytorch_model.bin")
    assert result.keys() == arrays().keys()
    for name, expected in arrays().items():
        assert result[name].value().dtype == np.float32
        np.testing.assert_array_equal(result[name].value(), expected.astype(np.float32))


def archive(path, pickle: bytes, data: bytes = b"", order: bytes | None = None) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle)
        file.writestr("archive/data/0", data)
        if order:
            file.writestr("archive/byteorder", order)


def test_views_of_one_storage(tmp_path):
    """The view is a transposed part, with offset 1 and the strides of a matrix of 4 columns."""
    data = np.arange(12, dtype=np.float32)
    view = tensor(0, "FloatStorage", 12, (2, 3), (1, 4), offset=1)
    archive(tmp_path / "a.bin", b"\x80\x02}" + text("w") + view + b"s.", data.tobytes())
    np.testing.assert_array_equal(open_pytorch_file(tmp_path / "a.bin")["w"].value(), data.reshape(3, 4).T[1:3])


def test_big_endian_files(tmp_path):
    data = np.arange(3, dtype=">f4")
    code = b"\x80\x02}" + text("w") + tensor(0, "FloatStorage", 3, (3,), (1,)) + b"s."
    archive(tmp_path / "a.bin", code, data.tobytes(), b"big")
    np.testing.assert_array_equal(open_pytorch_file(tmp_path / "a.bin")["w"].value(), [0, 1, 2])


MARK = "ran-what-was-pickled"
REBUILD, PARAMETER = b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n"
DICT = b"ccollections\nOrderedDict\n"
STORAGE = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + whole(3) + b"tQ"
ATTACKS = {
    "system": b"cos\nsystem\n(" + text(f"touch {MARK}") + b"tR0",
    "eval in Python 2's name": b"c__builtin__\neval\n(" + text(f"open('{MARK}', 'w')") + b"tR0",
    "getattr": b"cbuiltins\ngetattr\n0",
    "instance": b"(" + text(f"touch {MARK}") + b"ios\nsystem\n0",
    "object": b"(cos\nsystem\n" + text(f"touch {MARK}") + b"o0",
    "load": b"ctorch\nload\n0",
    "dotted name": b"\x80\x04" + b"\x8c\x0bcollections" + b"\x8c\x14OrderedDict.fromkeys" + b"\x930",
    "name of several lines": b"\x80\x04\x8c\x05two\nl\x8c\x04ines\x930",
    "reconstruction": b"ccopyreg\n_reconstructor\n(ccollections\nOrderedDict\nc__builtin__\nobject\nNtR0",
    "extension": b"\x82\xf0(" + text(f"touch {MARK}") + b"tR0",
    "extension of two bytes": b"\x83\xf0\x000",
    "attribute of a function": REBUILD + b"}" + text("__defaults__") + b"Nsb0",
    "slot of a function": REBUILD + b"N}" + text("_function") + b"Ns\x86b0",
}


@pytest.fixture
def extension():
    """Make ``os.system`` number 240 of copyreg's extensions, with a cached lookup."""
    copyreg.add_extension("os", "system", 240)
    assert pickle.loads(b"\x80\x02\x82\xf0.") is os.system
    yield
    copyreg.remove_extension("os", "system", 240)


@pytest.mark.parametrize("attack", ATTACKS)
def test_code_is_refused_and_not_run(attack, tmp_path, monkeypatch, extension):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pytorch_model.bin"
    write_bin(path, arrays(), preamble=ATTACKS[attack])
    with pytest.raises(UserError, match=r"pytorch_model\.bin: not read, .*; .* python -c ") as error:
        open_pytorch_file(path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / MARK).exists()


def test_reaching_beyond_the_numbers_is_an_error_that_names_the_weight(tmp_path):
    for shape, strides, offset in (((9,), (1,), 0), ((2,), (1,), 2), ((3,), (2**29,), 0), ((2,), (1,), -1 % 2**32)):
        code = REBUILD + b"(" + STORAGE + whole(offset) + numbers(shape) + numbers(strides) + b"\x89}tR"
        archive(tmp_path / "a.bin", b"\x80\x02}" + text("weight.name") + code + b"s.", b"\0" * 12)
        with pytest.raises(UserError, match=r"a\.bin: weight\.name: cannot be read"):
            open_pytorch_file(tmp_path / "a.bin")["weight.name"].value()


DAMAGED = {
    "a list": b"].",
    "no end": b"}",
    "a call of a text": b"ctorch\nFloatStorage\n)R.",
    "an instance of a function": REBUILD + b")\x81.",
    "attributes of a text": b"ctorch\nFloatStorage\n}" + text("x") + b"Nsb.",
    "attributes of a storage": STORAGE + b"N}" + text("type") + text("x") + b"s\x86b.",
    "a number type, by the parts of a storage": PARAMETER + STORAGE + b"R.",
    "a copy of a table": DICT + b"}\x85R.",
    "a shape of texts": REBUILD + b"(" + STORAGE + whole(0) + b"(" + text("a") + b"t" + numbers((1,)) + b"tR.",
    "a shape of many axes": REBUILD + b"(" + STORAGE + whole(0) + numbers([1] * 65) + numbers([1] * 65) + b"tR.",
    "a number of many digits": REBUILD + b"(" + STORAGE + b"\x8a\x09" + b"\x7f" * 9 + b"))tR.",
    "lists within lists": b"]" * 20_000 + b"a" * 19_999 + b".",
    "tuples within a key": b"})" + b"\x85" * 500_000 + b"Ns.",
    "a value of a high number": b"Nr\xff\xff\xff\x7f.",
    "a text of 2**62 letters": b"\x8d" + (2**62).to_bytes(8, "little") + b"a.",
    "a frame of 2**62 bytes": b"\x95" + (2**62).to_bytes(8, "little") + b"}.",
    "megabytes": b"N0" * 600_000 + b"}.",
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_no_table_of_weights(case, tmp_path):
    archive(tmp_path / "a.bin", b"\x80\x04" + DAMAGED[case])
    with pytest.raises(UserError, match=r"a\.bin: cannot be read \(") as error:
        open_pytorch_file(tmp_path / "a.bin")
    assert "\n" not in str(error.value)


def test_a_pickle_gets_hold_of_nothing_but_plain_values():
    """Random instructions combine all names that a pickle can use."""
    chance = random.Random(0)
    known = [REBUILD, PARAMETER, DICT, DICT + b")R", STORAGE, text("x")]
    known += [b"K\x01", b"q\x01", b"h\x01", b"\x85", b"R", b"b"]
    others = [op.code.encode("latin-1") for op in pickletools.opcodes if op.arg is None and op.name != "STOP"]
    plain = {type(value) for value in (None, True, 1, 1.0, "", b"", (), [], {}, set(), frozenset(), bytearray())}
    ours = {pytorch_file.Storage, pytorch_file._StateDict, pytorch_file._Function}
    result = set()
    for _ in range(20_000):
        code = b"".join(chance.choice(chance.choice([known, known, others])) for _ in range(chance.choice([3, 8, 20])))
        with contextlib.suppress(Exception):
            result.add(type(pytorch_file._unpickled(b"\x80\x04" + code + b".")))
    assert ours < result <= plain | ours
    functions = [value._function for value in pytorch_file._NAMES.values() if not isinstance(value, str)]
    assert all(function.__module__ == pytorch_file.__name__ and not vars(function) for function in functions)


def test_a_small_file_of_large_entries_is_refused_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "bomb.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\x80\x02}.")
        file.writestr("archive/data/0", bytes(2**22))
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("an entry is read"))
    with pytest.raises(UserError, match=r"bomb\.bin.*many times its size"):
        open_pytorch_file(path)
