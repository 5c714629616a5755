"""Packs this project's environment for a GPU machine without a network: ``python -m benchmarks.gpu_bundle``.

Downloads the packages of requirements.txt for another Python, installs them in a folder, and leaves out what such a
visit does not need: debug symbols, headers, and the device code of other GPUs. The result is one ``.tar.xz``, cut in
parts if ``--part-mib`` says so. The machine needs NVIDIA's driver and the libraries that PyTorch brings along (cuBLAS,
cuDNN, …); ``python -m benchmarks.gpu_visit`` finds them.
"""

from __future__ import annotations

import argparse
import mmap
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.measuring import HelpFormatter
from data_utils.command_line import positive
from utilities.commands import make_parser, run_main
from utilities.errors import UserError
from utilities.files import PROJECT

MAGIC = struct.pack("<I", 0xBA55ED50)  # of CUDA's "fat binaries", which have device code for several GPUs
FAT_HEADER = struct.Struct("<IHHQ")  # magic, version, size of the header, size of what follows
CODE_HEADER = struct.Struct("<HHIQIIHHI")  # kind, –, size of the header, size of the code, …, –, –, –, –, architecture
PTX, MACHINE_CODE = 1, 2
PLATFORMS = ("manylinux1", "manylinux2014", *(f"manylinux_2_{minor}" for minor in (17, 24, 26, 27, 28, 31)))
CUDA = ("nvidia-cuda-runtime-cu12", "nvidia-cuda-cupti-cu12")  # of the version that TensorFlow was built with
UNUSED = ("libclang", "matplotlib", "pillow", "fonttools", "tensorboard", "kiwisolver", "contourpy", "setuptools")
LEFT_OUT = ("tensorflow/include", "**/tests", "**/__pycache__")


class Code(NamedTuple):
    """Device code for one kind of GPU.

    Attributes:
        kind: ``PTX``, which the driver compiles for a GPU, or ``MACHINE_CODE``.
        architecture: compute capability × 10.
        begin, end: position in the file.
    """

    kind: int
    architecture: int
    begin: int
    end: int


def fat_binaries(data: mmap.mmap | bytes) -> Iterator[list[Code]]:
    """Yield the device codes of each fat binary in a library."""
    at = data.find(MAGIC)
    while at >= 0:
        _, version, header, size = FAT_HEADER.unpack_from(data, at)
        begin, end = at + header, at + header + size
        if version != 1 or header != FAT_HEADER.size or end > len(data):  # the four bytes are something else
            at = data.find(MAGIC, at + len(MAGIC))
            continue
        codes = []
        while begin < end:
            kind, _, head, length, *_, architecture = CODE_HEADER.unpack_from(data, begin)
            codes.append(Code(kind, architecture, begin + head, begin + head + length))
            begin = codes[-1].end
        yield codes
        at = data.find(MAGIC, end)


def remove_other_gpus(library: Path, architecture: int) -> int:
    """Overwrite the device code that a GPU does not need with zeros, which pack well, and return the bytes.

    A GPU runs machine code of its own generation that is not newer; where there is none, its driver compiles PTX.
    """
    removed = 0
    with library.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for codes in fat_binaries(data):
            older = sorted((code for code in codes if code.architecture <= architecture), key=_architecture)
            own = [
                code for code in older if code.kind == MACHINE_CODE and code.architecture // 10 == architecture // 10
            ]
            compiled = [code for code in older if code.kind == PTX]
            kept = own[-1:] or compiled[-1:]
            for code in codes:
                if kept and code not in kept:
                    data[code.begin : code.end] = bytes(code.end - code.begin)
                    removed += code.end - code.begin
    return removed


def _architecture(code: Code) -> int:
    return code.architecture


def make_bundle(options: argparse.Namespace) -> int:
    folder, wheels = Path(options.output), Path(options.output) / "wheels"
    site = folder / "site"
    if site.exists():
        raise UserError(f"{site} exists; give another --output")
    wheels.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    target = ["--only-binary=:all:", "--python-version", options.python, "--implementation", "cp"]
    target += [word for name in PLATFORMS for word in ("--platform", f"{name}_x86_64")]
    _run([*pip, "download", *target, "--dest", str(wheels), "-r", str(PROJECT / "requirements.txt")])
    _run([*pip, "download", *target, "--dest", str(wheels), "--no-deps", *CUDA])
    chosen = [str(wheel) for wheel in sorted(wheels.glob("*.whl")) if not wheel.name.lower().startswith(UNUSED)]
    _run([*pip, "install", "--no-index", "--no-deps", "--no-compile", *target, "--target", str(site), *chosen])
    for pattern in LEFT_OUT:
        for unused in list(site.glob(pattern)):
            shutil.rmtree(unused)
    for library in sorted(site.glob("tensorflow/**/*.so*")):
        removed = remove_other_gpus(library, options.architecture)
        if removed:
            print(f"{library.relative_to(site)}: {removed / 2**20:,.0f} MiB of device code of other GPUs left out")
        _run(["strip", "--strip-unneeded", str(library)])
    archive = folder / "bundle.tar.xz"
    _run(["sh", "-c", f"tar -C '{site}' -c . | xz --threads=0 --block-size=24MiB > '{archive}'"])
    if options.part_mib is not None:
        _run(["split", "--numeric-suffixes", f"--bytes={options.part_mib}m", str(archive), f"{folder}/part."])
    print(f"{archive}: {archive.stat().st_size / 2**20:,.0f} MiB")
    return 0


def _run(words: list[str]) -> None:
    if subprocess.run(words, check=False).returncode:
        raise UserError(f"`{words[0]}` failed, see above")


def make_bundle_parser() -> argparse.ArgumentParser:
    parser = make_parser("benchmarks.gpu_bundle", __doc__)
    parser.formatter_class = HelpFormatter
    parser.add_argument("--output", default="runs/gpu_bundle", metavar="DIR", help="new folder")
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="Python of the GPU machine")
    parser.add_argument("--architecture", type=positive, default=90, metavar="N", help="compute capability × 10")
    parser.add_argument("--part-mib", type=positive, metavar="N", help="cut the archive into parts of this size")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_bundle_parser(), make_bundle))
