"""Makes the environment of Graphcore's program, and extracts the program from a clone of graphcore/examples."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as for that script itself

from ipu_emulation import default_environment as emulation_environment  # noqa: E402
from make_environment import SetupError, find_clone, run  # noqa: E402

PROGRAM = "nlp/bert/tensorflow2"
WRITTEN_FOR = "3cc8f81f13728dd8c17d0d3c8d2fc1549b159485"  # the commit of graphcore/examples
# What the program wants beside the emulation's packages, without their own requirements; pytest runs its tests.
PACKAGES = (
    "pydantic==1.9.2", "transformers==4.18.0", "tokenizers==0.12.1", "huggingface_hub==0.4.0", "sacremoses", "click",
    "joblib", "tensorflow-addons==0.14.0", "typeguard==2.13.3", "pytest==6.2.5", "py", "attrs", "iniconfig",
    "pluggy==0.13.1", "toml",
)  # fmt: skip
NOT_USED = ("wandb", "datasets", "tensorflow_datasets")  # imported by the program, and not used by these runs
# Layers take KerasTensors of the package keras: the one difference of Graphcore's own fork of transformers.
OTHER_KERAS = ("transformers/modeling_tf_utils.py", "from tensorflow.python.keras.engine", "from keras.engine")


def default_environment() -> Path:
    """Where the environment is unless told otherwise: beside the emulation's."""
    return Path(os.environ.get("PUBLISHED_PROGRAM_ENV", emulation_environment().with_name("published_program")))


def make_environment(target: Path) -> None:
    """Copy the emulation's environment to ``target`` and add what the program wants, unless it is there already."""
    emulation = emulation_environment()
    if (target / "bin" / "python").exists():
        return
    if not (emulation / "bin" / "python").exists():
        raise SetupError(f"{emulation} has no environment of the emulation; make ipu-emulation makes it")
    print(f"making {target} (2 minutes)", flush=True)
    growing = target.with_name(f"{target.name}.growing")
    shutil.rmtree(growing, ignore_errors=True)
    shutil.copytree(emulation, growing, symlinks=True)
    run(growing / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", *PACKAGES)
    site = growing / "lib" / "python3.8" / "site-packages"
    file, old, new = site / OTHER_KERAS[0], *OTHER_KERAS[1:]
    file.write_text(file.read_text().replace(old, new))
    for name in NOT_USED:
        (site / name).mkdir(exist_ok=True)
        (site / name / "__init__.py").touch()
    growing.rename(target)


def extract_program(sources: Path, target: Path, branch: str) -> Path:
    """Extract the program from the clone of graphcore/examples under a folder, and return where it is."""
    clone = find_clone(sources, "examples", branch)
    if clone.commit != WRITTEN_FOR:
        print(f"{clone.path} is at {clone.commit[:7]}; the comparison was written for {WRITTEN_FOR[:7]}", flush=True)
    target.mkdir(parents=True, exist_ok=True)
    clone.unpack(target, PROGRAM)
    return target / PROGRAM
