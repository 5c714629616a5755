"""Describes the machine and the software of a run, for its report, and sets how memory is allocated.

The description of the machine contains no user or host names. How the program was started (``describe_start``) may
contain some in its paths; secrets are masked.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from utilities.secrets import mask_value

VERSION = "1.0.0"  # of this project; see CHANGELOG.md
PACKAGES = ("tensorflow", "tf-keras", "keras", "transformers", "tokenizers", "numpy", "pydantic")
MALLOC_OPTIONS = {  # by their numbers in glibc's malloc.h
    -8: 1,  # M_ARENA_MAX, heaps: by default up to 8 per core, each with the gaps that threads leave after compiling
    -4: 0,  # M_MMAP_MAX, blocks outside the heap: they are returned to the system when they are freed
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD, bytes: more free memory than this at the end of the heap is returned
}
# The environment variables that are recorded because they can change a training. They are named one by one: others
# that begin alike have secrets, such as Terraform's TF_TOKEN_… and TF_VAR_….
VARIABLES = (
    "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES", "HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE", "HF_ENDPOINT", "HF_HOME",
    "HF_HUB_CACHE", "HF_HUB_OFFLINE", "KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_SETTINGS", "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS", "OMP_NUM_THREADS", "OMP_PLACES",
    "OMP_PROC_BIND", "OMP_SCHEDULE", "OMP_WAIT_POLICY", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_ARENA_MAX",
    "MALLOC_CONF", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "POPLAR_ENGINE_OPTIONS",
    "POPLAR_LOG_LEVEL", "POPLAR_RUNTIME_OPTIONS", "POPLAR_SDK_ENABLED", "POPLAR_TARGET_OPTIONS",
    "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONWARNINGS",
    "TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL", "TF_CUDNN_DETERMINISTIC", "TF_CUDNN_USE_AUTOTUNE",
    "TF_DETERMINISTIC_OPS", "TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_GPU_GARBAGE_COLLECTION",
    "TF_ENABLE_ONEDNN_OPTS", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_FUNCTION_JIT_COMPILE_DEFAULT", "TF_GPU_ALLOCATOR",
    "TF_GPU_THREAD_COUNT", "TF_GPU_THREAD_MODE", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS",
    "TF_POPLAR_FLAGS", "TF_USE_LEGACY_KERAS", "TF_XLA_FLAGS", "XLA_FLAGS", "TOKENIZERS_PARALLELISM",
    "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "TRANSFORMERS_VERBOSITY",
    "WANDB_DIR", "WANDB_DISABLED", "WANDB_ENTITY", "WANDB_MODE", "WANDB_PROJECT",  # room: wandb
)  # fmt: skip
CGROUP = Path("/sys/fs/cgroup")  # the limits of a container, of cgroups 2 or 1
INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "bf16")


class Gpu(NamedTuple):
    name: str
    memory: int  # MiB
    compute_capability: float  # NVIDIA's version of what it can do; 7.0 has tensor cores, 8.0 fast bfloat16


def describe_environment() -> Dict[str, Any]:
    """Describe machine and software by values that JSON can represent, without TensorFlow; unknown ones are None."""
    memory = memory_bytes()
    return {
        "version": VERSION,
        "python": platform.python_version(),
        "os": platform.platform(),
        "cpu": _cpu_field("model name", "Model") or platform.processor() or None,
        "cpu_cores": os.cpu_count(),
        "cpu_cores_usable": usable_cores(),
        "cpu_instruction_sets": _instruction_sets(),
        "memory_gib": None if memory is None else round(memory / 2**30, 1),
        "gpus": [gpu.name for gpu in nvidia_gpus()],
        "packages": _versions(),
        "git_commit": project_commit(),
    }


def describe_start() -> Dict[str, Any]:
    """Return how this process was started, without secrets: the command, its folder, and variables that matter."""
    arguments = getattr(sys, "orig_argv", [sys.executable, *sys.argv])  # with Python's own options, from 3.10 on
    description = {
        "command": shlex.join(["python", *arguments[1:]]),
        "folder": os.getcwd(),
        "variables": {name: value for name, value in sorted(os.environ.items()) if name in VARIABLES},
    }
    return mask_value(description)


def program_version() -> str:
    """Return the version of this project, with the commit if there is a git folder: ``1.0.0 (commit 12ab34cd56ef)``."""
    commit, _, changed = (project_commit() or "").partition("-")
    return f"{VERSION} (commit {commit[:12]}{'-' * bool(changed)}{changed})" if commit else VERSION


@functools.lru_cache(maxsize=None)
def project_commit() -> Optional[str]:
    """Return the commit of this project's folder; None without git."""
    return git_commit(Path(__file__).resolve().parent)


def graphcore_installed() -> bool:
    """Return whether Graphcore's packages for TensorFlow are installed, without importing any."""
    return importlib.util.find_spec("ipu_tensorflow_addons") is not None


def is_graphcore(platform: str) -> bool:
    """Return whether a config's ``execution.platform`` selects Graphcore's TensorFlow on this machine."""
    return platform == "graphcore" or (platform == "auto" and graphcore_installed())


def usable_cores() -> int:
    """Return the number of cores that this process may use: those of its container, not of the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _core_limit() or cores)


def _core_limit() -> Optional[int]:
    """Return the cores whose time this process' container may use, rounded up; None without a limit."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = " ".join((CGROUP / name).read_text(encoding="ascii") for name in names).split()
            return -(-int(quota) // int(period)) if int(quota) > 0 else None
    return None


def memory_bytes() -> Optional[int]:
    """Return the memory of this machine, or of the container if that is less; None if unknown."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            memory = min(memory, int((CGROUP / limit).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return memory


def prepare_transformers() -> None:
    """Set what Transformers reads at its import; it loads PyTorch, which takes 270 MB, and shows notices of its own.

    A program that has loaded PyTorch itself may want Transformers' models in PyTorch, too.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("USE_TORCH", "0")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def keep_freed_memory() -> None:
    """Keep freed memory in this process, where the next training step uses it again.

    By default glibc returns large blocks to the system, so every step allocates its tensors again, with a page fault
    for each 4 KB. Other C libraries are not changed.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option, value in MALLOC_OPTIONS.items():
            libc.mallopt(option, value)


def return_freed_memory() -> None:
    """Return the memory that this process has freed to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def fast_bfloat16() -> str:
    """Return the instruction set by which this processor multiplies bfloat16 matrices faster than float32 ones.

    On 2 cores AMX is 4 to 5 times as fast, and AVX-512's bfloat16 is 1.7 times as fast on AMD's Zen 4. On Intel's Xeons
    without AMX it is slower, at 0.6 of the speed. Empty if there is none.
    """
    available = _instruction_sets()
    if "amx_bf16" in available:
        return "amx_bf16"
    if "avx512_bf16" in available and _cpu_field("vendor_id") == "AuthenticAMD":
        return "avx512_bf16"
    return ""


def lacks_instructions(name: str) -> bool:
    """Return whether this is an x86 processor that is known not to have these instructions, such as ``avx``."""
    flags = _cpu_field("flags")
    return flags is not None and name not in flags.split()


def git_commit(folder: Path) -> Optional[str]:
    """Return the commit of a folder, followed by ``-dirty`` if files differ; None without git."""
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
        output = subprocess.check_output(command, stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return output.decode("ascii", "replace").strip() or None


def _versions() -> Dict[str, str]:
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _cpu_field(*names: str) -> Optional[str]:
    """Return the first field of /proc/cpuinfo with one of these names."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return None


def _instruction_sets() -> List[str]:
    flags = (_cpu_field("flags", "Features") or "").split()
    return [name for name in INSTRUCTION_SETS if name in flags]


@functools.lru_cache(maxsize=None)
def nvidia_gpus() -> Tuple[Gpu, ...]:
    """Return NVIDIA's GPUs in this machine, as its driver lists them; TensorFlow may be unable to use them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.check_output(query, stderr=subprocess.DEVNULL, timeout=30).decode("utf-8", "replace")
        rows = [line.rsplit(",", 2) for line in output.splitlines() if line]
        return tuple(Gpu(name.strip(), int(memory), float(compute)) for name, memory, compute in rows)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()
