"""The parts of a visit to a GPU that need none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_visit
from benchmarks.gpu_visit import LIBRARIES, borrow, make_visit_parser, trace_lines, visit
from benchmarks.ours import Clock
from utilities.errors import UserError


def event(cat: str, name: str, begin: float, duration: float) -> dict[str, object]:
    return {"cat": cat, "name": name, "ts": begin, "dur": duration}


def test_a_trace_is_summed_by_kernel_and_by_call_of_the_host() -> None:
    events = [
        {"ph": "M", "name": "process_name"},
        event("kernel", "gemm", 7_000, 1_500),
        event("kernel", "gemm", 1_000, 2_500),
        event("gpu_memset", "Memset (Device)", 4_000, 500),
        event("cuda_runtime", "cudaLaunchKernel", 0, 20),
        event("cuda_driver", "cuStreamSynchronize", 30, 6_000),
    ]
    about, first, second, _, waiting, launch = trace_lines(events, 2)
    assert about == "an update: 3.75 ms, kernels run 2.25 ms of them"  # from 1 to 8.5 ms, in two updates
    assert first.split() == ["2.000", "ms", "1.0", "×", "gemm"] and second.split()[0] == "0.250"
    assert waiting.split()[0] == "3.000" and waiting.endswith("cuStreamSynchronize")
    assert launch.split()[:3] == ["0.010", "ms", "0.5"]


def test_libraries_of_pytorch_are_lent_under_the_names_that_tensorflow_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = tmp_path / "site" / "nvidia" / "cu13" / "lib"
    libraries.mkdir(parents=True)
    (libraries / "libcublas.so.13").write_text("cuBLAS")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    borrow(tmp_path / "lent")
    assert (tmp_path / "lent" / "libcublas.so.12").read_text() == "cuBLAS"
    assert os.environ["LD_LIBRARY_PATH"].split(":") == [str(tmp_path / "lent"), str(libraries), "/before"]
    assert set(os.listdir(tmp_path / "lent")) < set(LIBRARIES)


def test_a_section_that_fails_is_named_and_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(options: object) -> str:
        raise UserError("no kernel image")

    monkeypatch.setattr(gpu_visit, "SECTIONS", {"speed": fails, "tests": lambda options: "40 passed"})
    words = ["--device", "cpu", "--output", str(tmp_path / "v.txt"), "--sections", "speed", "tests"]
    assert visit(make_visit_parser().parse_args(words)) == 0
    text = (tmp_path / "v.txt").read_text(encoding="utf-8")
    assert "=== speed" in text and "failed: no kernel image" in text and "40 passed" in text


def test_updates_that_wait_for_the_first_data_are_not_timed() -> None:
    clock, calls = Clock(5, 3, untimed=1), []
    goes_on = True
    while goes_on:
        calls.append(clock.next_call())
        goes_on = clock.after_call(calls[-1], lambda: {"mlm_loss": float(len(calls))})
    assert calls == [1, 3, 2] and len(clock.begins) == len(clock.ends) == 2
    assert [means["mlm_loss"] for means in clock.means] == [2.0, 3.0]
