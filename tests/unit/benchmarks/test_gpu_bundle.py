"""Device code of other GPUs is left out of a bundle."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from benchmarks.gpu_bundle import MACHINE_CODE, PTX, remove_other_gpus

HEAD = 64  # bytes of a code's header in the libraries of CUDA 12


def fat_binary(*codes: tuple[int, int, bytes]) -> bytes:
    """Return a fat binary with (kind, architecture, code), as NVIDIA's compiler lays it out."""
    body = b"".join(
        struct.pack("<HHIQIIHHI", kind, 0x101, HEAD, len(code), 0, 0, 0, 0, architecture).ljust(HEAD, b"\1") + code
        for kind, architecture, code in codes
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


@pytest.mark.parametrize(
    ("architecture", "kept"),
    [(90, {b"nine" * 4, b"ptx9" * 4}), (86, {b"eight" * 4, b"ampere" * 4}), (75, {b"ptx7" * 4, b"turing" * 4})],
)
def test_a_gpu_keeps_its_own_code_or_else_the_newest_that_its_driver_compiles(
    architecture: int, kept: set[bytes], tmp_path: Path
) -> None:
    both = [(MACHINE_CODE, 80, b"eight" * 4), (MACHINE_CODE, 90, b"nine" * 4), (PTX, 70, b"ptx7" * 4)]
    alone = [(PTX, 75, b"turing" * 4), (MACHINE_CODE, 80, b"ampere" * 4), (PTX, 90, b"ptx9" * 4)]
    no_header = struct.pack("<IHHQ", 0xBA55ED50, 7, 16, 5) + b"other"
    content = b"ELF" + fat_binary(*both) + no_header + b"text" + fat_binary(*alone) + b"end"
    library = tmp_path / "library.so"
    library.write_bytes(content)
    removed = remove_other_gpus(library, architecture)
    after = library.read_bytes()
    codes = {code for _, _, code in both + alone}
    assert {code for code in codes if code in after} == kept
    assert removed == sum(len(code) for code in codes - kept)
    assert len(after) == len(content) and after.startswith(b"ELF") and after.endswith(b"end") and no_header in after
