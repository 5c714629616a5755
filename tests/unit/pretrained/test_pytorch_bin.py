"""Files of PyTorch are read without PyTorch, and what is pickled in them is never run."""

from __future__ import annotations

import zipfile

import ml_dtypes
import numpy as np
import pytest

from checkpoints.formats.pytorch import open_pytorch
from tests.unit.pretrained.writers import numbers, tensor, text, whole, write_bin
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
    found = open_pytorch(tmp_path / "pytorch_model.bin")
    assert found.keys() == arrays().keys()
    for name, expected in arrays().items():
        assert found[name].value().dtype == np.float32
        np.testing.assert_array_equal(found[name].value(), expected.astype(np.float32))


def archive(path, pickle: bytes, data: bytes = b"", order: bytes | None = None) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle)
        file.writestr("archive/data/0", data)
        if order:
            file.writestr("archive/byteorder", order)


def test_views_of_one_storage(tmp_path):
    """A transposed part: offset 1, strides as of a matrix of 4 columns."""
    data = np.arange(12, dtype=np.float32)
    view = tensor(0, "FloatStorage", 12, (2, 3), (1, 4), offset=1)
    archive(tmp_path / "a.bin", b"\x80\x02}" + text("w") + view + b"s.", data.tobytes())
    np.testing.assert_array_equal(open_pytorch(tmp_path / "a.bin")["w"].value(), data.reshape(3, 4).T[1:3])


def test_big_endian_files(tmp_path):
    data = np.arange(3, dtype=">f4")
    code = b"\x80\x02}" + text("w") + tensor(0, "FloatStorage", 3, (3,), (1,)) + b"s."
    archive(tmp_path / "a.bin", code, data.tobytes(), b"big")
    np.testing.assert_array_equal(open_pytorch(tmp_path / "a.bin")["w"].value(), [0, 1, 2])


MARK = "ran-what-was-pickled"
ATTACKS = {
    "system": b"cos\nsystem\n(" + text(f"touch {MARK}") + b"tR0",
    "exec": b"cbuiltins\nexec\n(" + text(f"open('{MARK}', 'w')") + b"tR0",
    "eval in Python 2's name": b"c__builtin__\neval\n(" + text(f"open('{MARK}', 'w')") + b"tR0",
    "getattr": b"cbuiltins\ngetattr\n0",
    "instance": b"(" + text(f"touch {MARK}") + b"ios\nsystem\n0",
    "object": b"(cos\nsystem\n" + text(f"touch {MARK}") + b"o0",
    "load": b"ctorch\nload\n0",
    "another library": b"cnumpy\nload\n0",
    "dotted name": b"\x80\x04" + b"\x8c\x0bcollections" + b"\x8c\x14OrderedDict.fromkeys" + b"\x930",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_code_is_refused_and_not_run(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pytorch_model.bin"
    write_bin(path, arrays(), preamble=ATTACKS[attack])
    with pytest.raises(
        UserError, match=r"pytorch_model\.bin: not read, because it asks for .*; .* python -c "
    ) as error:
        open_pytorch(path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / MARK).exists()


def test_reaching_beyond_the_numbers_is_an_error_that_names_the_weight(tmp_path):
    for shape, strides, offset in (((9,), (1,), 0), ((2,), (1,), 2), ((3,), (2**29,), 0), ((2,), (1,), -1 % 2**32)):
        view = b"ctorch._utils\n_rebuild_tensor_v2\n("
        place = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + whole(3) + b"tQ"
        code = view + place + whole(offset) + numbers(shape) + numbers(strides) + b"\x89}tR"
        archive(tmp_path / "a.bin", b"\x80\x02}" + text("weight.name") + code + b"s.", b"\0" * 12)
        with pytest.raises(UserError, match=r"a\.bin: weight\.name: cannot be read"):
            open_pytorch(tmp_path / "a.bin")["weight.name"].value()


@pytest.mark.parametrize("content", [b"\x80\x02]."[:], b"\x80\x02K\x01.", b"\x80\x02}", b"garbage"])
def test_what_is_no_table_of_weights(content, tmp_path):
    archive(tmp_path / "a.bin", content)
    with pytest.raises(UserError, match=r"a\.bin"):
        open_pytorch(tmp_path / "a.bin")


def test_another_file_is_refused_with_the_command_that_converts_it(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")  # before PyTorch 1.6
    with pytest.raises(UserError, match=r"PyTorch is installed: python -c .*weights_only=True.*model\.safetensors"):
        open_pytorch(tmp_path / "pytorch_model.bin")
