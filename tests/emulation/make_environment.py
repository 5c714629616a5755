"""Makes the Python 3.8 environment of the emulation from local clones of Graphcore's repositories.

    python tests/emulation/make_environment.py --sources DIR [--env DIR] [--branch NAME]

DIR holds clones, bare or ordinary, named keras, ipu_tensorflow_addons and tensorflow, or owner+name/repo. Packages come
from the package index that pip is set up for. What is there already, from the same commits, is not made again.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ipu_emulation import default_environment

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE.parent.parent / "requirements-ipu.txt"
# What stands in for the wheels of the SDK, and the compiler of Graphcore's messages.
STOCK = ("tensorflow==2.6.5", "keras==2.6.0", "grpcio-tools==1.44.0")
REPOSITORIES = ("keras", "ipu_tensorflow_addons", "tensorflow")
PLUGIN = "tensorflow/compiler/plugin/poplar"
MARK = "IPU specific changes"  # Graphcore's mark in TensorFlow's own Python files
PROTOS_OF_TENSORFLOW = ("tensorflow/compiler/xla/xla_data.proto", "tensorflow/core/framework/types.proto")
VERSIONS = 'TENSORFLOW_VERSION = "2.6.5"\nKERAS_VERSION = "2.6.0"\n'  # a file that Graphcore's build writes


class SetupError(Exception):
    """Something that the user has to mend."""


class Clone:
    """One branch of a repository on this machine."""

    def __init__(self, path: Path, branch: str):
        self.path = path
        for reference in (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}"):
            found = subprocess.run(
                ["git", "-C", str(path), "rev-parse", "--verify", "-q", f"{reference}^{{commit}}"],
                stdout=subprocess.PIPE,
            )
            if found.returncode == 0:
                self.commit = found.stdout.decode().strip()
                return
        raise SetupError(f"{path} has no branch {branch}; fetch it, or name another with --branch")

    def git(self, *arguments: str) -> bytes:
        """Return the output of a git command."""
        done = subprocess.run(["git", "-C", str(self.path), *arguments], capture_output=True)
        if done.returncode:
            raise SetupError(f"git {arguments[0]} in {self.path}: {done.stderr.decode().strip()}")
        return done.stdout

    def files(self, folder: str, *endings: str) -> List[str]:
        names = self.git("ls-tree", "-r", "--name-only", self.commit, folder).decode().split()
        return [name for name in names if name.endswith(endings)]

    def files_with(self, text: str, folder: str) -> List[str]:
        lines = self.git("grep", "-l", text, self.commit, "--", folder).decode().split()
        return [line.partition(":")[2] for line in lines if line.endswith(".py")]

    def unpack(self, target: Path, *paths: str) -> None:
        with tarfile.open(fileobj=io.BytesIO(self.git("archive", self.commit, *paths))) as archive:
            archive.extractall(str(target))


def find_clone(sources: Path, name: str, branch: str) -> Clone:
    """Return the clone of Graphcore's repository ``name`` under a folder."""
    patterns = (name, f"{name}.git", f"{name}/repo", f"graphcore+{name}/repo", f"graphcore+{name}", f"*+{name}/repo")
    for path in (Path(found) for pattern in patterns for found in sorted(glob.glob(str(sources / pattern)))):
        if (path / "HEAD").is_file() or (path / ".git").exists():
            return Clone(path, branch)
    raise SetupError(f"{sources} has no clone named {name}; looked for {', '.join(patterns)}")


def find_python() -> str:
    """Return a Python 3.8, on PATH or of pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which("python3.8")
    candidates = ([on_path] if on_path else []) + sorted(glob.glob(str(root / "versions/3.8.*/bin/python3.8")))
    for candidate in candidates:  # pyenv's shims are on PATH even where no 3.8 is chosen
        if subprocess.run([candidate, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return candidate
    raise SetupError("no Python 3.8 on PATH or in pyenv; TensorFlow 2.6 runs on no newer one than 3.9")


def run(*command: Any) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SetupError(f"{' '.join(str(word) for word in command[:6])} … failed:\n{done.stdout.decode()[-3000:]}")
    return done.stdout.decode()


def install(environment: Path) -> Tuple[Path, Path]:
    """Make a virtual environment with what an IPU run needs; return its Python and its site-packages."""
    python = environment / "bin" / "python"
    if not python.exists():
        run(find_python(), "-m", "venv", environment)
    print("installing packages", flush=True)
    run(python, "-m", "pip", "install", "-q", "--no-deps", *STOCK, "-r", REQUIREMENTS)
    return python, environment / "lib" / "python3.8" / "site-packages"


def overlay(clones: Dict[str, Clone], site: Path) -> None:
    """Put Graphcore's Python files over those of the wheels."""
    print("laying Graphcore's Python files over the wheels", flush=True)
    clones["keras"].unpack(site, "keras")
    clones["ipu_tensorflow_addons"].unpack(site, "ipu_tensorflow_addons")
    (site / "ipu_tensorflow_addons/util/_dependency_versions.py").write_text(VERSIONS)
    tensorflow = clones["tensorflow"]
    tools = tensorflow.files(f"{PLUGIN}/tools", "tensorflow_weights_extractor.py")
    tensorflow.unpack(site, "tensorflow/python/ipu", *tools, *tensorflow.files_with(MARK, "tensorflow/python"))


def compile_protos(tensorflow: Clone, python: Path, site: Path, scratch: Path) -> None:
    """Compile the plugin's message types."""
    protos = tensorflow.files(PLUGIN, ".proto")
    tensorflow.unpack(scratch, *protos, *PROTOS_OF_TENSORFLOW)
    run(python, "-m", "grpc_tools.protoc", f"-I{scratch}", f"--python_out={site}", *protos)


def compile_ops(tensorflow: Clone, python: Path, site: Path, scratch: Path) -> None:
    """Compile the plugin's op registrations as one library, without kernels."""
    print("compiling the op registrations", flush=True)
    if shutil.which("g++") is None:
        raise SetupError("no g++ on PATH; install a C++ compiler")
    sources = tensorflow.files(f"{PLUGIN}/ops", ".cc")
    tensorflow.unpack(scratch, f"{PLUGIN}/ops")
    every = scratch / "every.cc"
    every.write_text("".join(f'#include "{name}"\n' for name in sources))
    ask = "import json, tensorflow.sysconfig as s; print(json.dumps([s.get_compile_flags(), s.get_link_flags()]))"
    compiling, linking = json.loads(run(python, "-W", "ignore", "-c", ask).splitlines()[-1])
    target = site / PLUGIN / "ops" / "libpoplar_ops.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    run("g++", "-std=c++14", "-O0", "-shared", "-fPIC", "-w", f"-I{scratch}", *compiling, every, "-o", target, *linking)


def add_package_marks(site: Path) -> None:
    """Add __init__.py where it is missing, as Bazel does; nothing else is added to Graphcore's packages."""
    roots = ("keras", "ipu_tensorflow_addons", "tensorflow/compiler/plugin", "tensorflow/python/ipu")
    for root in (site / name for name in roots):
        for folder in [root, *(path for path in root.rglob("*") if path.is_dir() and path.name != "__pycache__")]:
            (folder / "__init__.py").touch()


def state_wanted(clones: Dict[str, Clone]) -> Dict[str, str]:
    """Return what the environment is made from."""
    own = [REQUIREMENTS, Path(__file__).resolve()]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in own)).hexdigest()
    return {"made by": digest, **{name: clone.commit for name, clone in clones.items()}}


def make_environment(sources: Path, environment: Path, branch: str) -> None:
    clones = {name: find_clone(sources, name, branch) for name in REPOSITORIES}
    wanted, stamp = state_wanted(clones), environment / "emulation.json"
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        print(f"{environment} is up to date")
        return
    environment.mkdir(parents=True, exist_ok=True)
    python, site = install(environment)
    scratch = environment / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    compile_ops(clones["tensorflow"], python, site, scratch)  # before the overlay: it imports the stock TensorFlow
    overlay(clones, site)
    compile_protos(clones["tensorflow"], python, site, scratch)
    add_package_marks(site)
    shutil.rmtree(scratch)
    print(run(sys.executable, HERE / "run.py", "--env", environment, HERE / "ipu_emulation/probe.py").splitlines()[0])
    stamp.write_text(json.dumps(wanted, indent=2))
    print(f"{environment} is ready")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=Path, required=True, metavar="DIR", help="folder of the clones")
    parser.add_argument("--env", type=Path, default=default_environment(), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--branch", default="r2.6/sdk-release-3.4", metavar="NAME", help="default: %(default)s")
    options = parser.parse_args()
    try:
        make_environment(options.sources.resolve(), options.env.absolute(), options.branch)
    except SetupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
