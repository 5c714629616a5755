"""The description of machine and software."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from utilities.environment import (
    VERSION,
    Gpu,
    describe_environment,
    describe_start,
    fast_bfloat16,
    git_commit,
    is_graphcore,
    nvidia_gpus,
    prepare_transformers,
    program_version,
    usable_cores,
)


def test_facts_are_true_and_contain_no_secret(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "hidden-key-1234")
    description = describe_environment()
    assert "hidden-key-1234" not in json.dumps(description)
    assert platform.node() not in [value for value in description.values() if isinstance(value, str)]
    assert description["version"] == VERSION and program_version().startswith(VERSION)
    assert description["python"] == platform.python_version()
    assert description["packages"]["numpy"] == importlib.metadata.version("numpy")
    assert description["cpu_cores"] >= description["cpu_cores_usable"] >= 1
    assert description["memory_gib"] > 0.1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000"}, 16),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "3200000 100000"}, 16),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({}, 16),
    ],
)
def test_a_container_limits_the_time_of_cores(tmp_path, monkeypatch, files, cores):
    """As ``docker --cpus`` and Kubernetes do, which leave all cores of the machine to the process."""
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr("utilities.environment.CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    assert usable_cores() == cores


def test_pytorch_is_left_to_a_program_that_has_loaded_it(monkeypatch):
    for is_loaded, said in ((False, "0"), (True, None)):
        monkeypatch.delenv("USE_TORCH", raising=False)
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        if is_loaded:
            monkeypatch.setitem(sys.modules, "torch", sys)
        prepare_transformers()
        assert os.environ.get("USE_TORCH") == said


def test_the_start_has_command_and_variables_without_secrets(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "hidden-key-1234")
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "3")
    monkeypatch.setenv("TF_TOKEN_app_terraform_io", "terraforms.secret")
    monkeypatch.setenv("TF_VAR_password", "another-secret")
    monkeypatch.setenv("HF_ENDPOINT", "https://me:p@ss:w@hub.example")
    monkeypatch.setattr(
        sys, "orig_argv", ["/bin/python3", "run_pretraining.py", "--name", "a b", "--hf-token", "s3cret99"]
    )
    start = describe_start()
    assert start["command"] == "python run_pretraining.py --name 'a b' --hf-token ***"
    assert start["variables"]["TF_NUM_INTEROP_THREADS"] == "3" and start["folder"] == str(Path.cwd())
    assert start["variables"]["HF_ENDPOINT"] == "https://me:***@hub.example"
    assert not {"WANDB_API_KEY", "TF_TOKEN_app_terraform_io", "TF_VAR_password"} & start["variables"].keys()
    assert "secret" not in json.dumps(start)


def test_platform_of_a_config(monkeypatch):
    assert [is_graphcore(name) for name in ("auto", "software", "graphcore")] == [False, False, True]
    monkeypatch.setattr("utilities.environment.graphcore_installed", lambda: True)
    assert [is_graphcore(name) for name in ("auto", "software", "graphcore")] == [True, False, True]


def test_gpus_are_those_that_the_driver_lists(tmp_path, monkeypatch):
    driver = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for status, lines, gpus in (
        (0, "NVIDIA H100 80GB HBM3, 81559, 9.0\nTesla, T4, 15360, 7.5", (("NVIDIA H100 80GB HBM3", 81559, 9.0),)),
        (0, "NVIDIA GB10, [N/A], 12.1", ()),
        (9, "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.", ()),
    ):
        driver.write_text(f"#!/bin/sh\nprintf '{lines}\\n'\nexit {status}\n")
        driver.chmod(0o755)
        nvidia_gpus.cache_clear()
        assert nvidia_gpus()[:1] == tuple(Gpu(*gpu) for gpu in gpus)
    nvidia_gpus.cache_clear()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_freed_memory_is_reused():
    code = """
import resource, threading
from utilities.environment import keep_freed_memory

keep_freed_memory()
faults = []

def allocate():
    for _ in range(5):
        bytes(100) * 2**20
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)

thread = threading.Thread(target=allocate)
thread.start()
thread.join()
print(faults[-1] - faults[0])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pages = 100 * 2**20 // 4096
    assert int(result.stdout) < pages // 100, "of the four blocks after the first"


def test_commit_of_a_folder(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    assert git_commit(tmp_path) is None
    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD").stdout.strip()
    git("tag", "-a", "v1", "-m", "a tag that must not hide the commit")
    assert git_commit(tmp_path) == commit
    (tmp_path / "file").write_text("2")
    assert git_commit(tmp_path) == f"{commit}-dirty"


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("GenuineIntel", "avx2 avx512f avx512_bf16 amx_bf16", "amx_bf16"),
        ("GenuineIntel", "avx2 avx512f avx512_bf16", ""),
        ("AuthenticAMD", "avx2 avx512f avx512_bf16", "avx512_bf16"),
        ("AuthenticAMD", "avx2 avx512f", ""),
        ("AuthenticAMD", "", ""),
    ],
)
def test_processors_that_are_fast_in_bfloat16(monkeypatch, vendor, flags, expected):
    text = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: a processor\nflags\t\t: fpu {flags}\n"
    monkeypatch.setattr(Path, "read_text", lambda path, **_: text)
    assert fast_bfloat16() == expected
