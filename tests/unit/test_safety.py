"""The code never does certain unsafe things, as its syntax shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

PACKAGES = (
    "benchmarks", "checkpoints", "data_utils", "execution", "keras_extensions", "model", "optimization", "sparsity",
    "tasks", "training", "utilities",
)  # fmt: skip

# Libraries that rebuild any object from bytes, and therefore run any code in them.
UNPICKLING = (
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle", "torch",
)  # fmt: skip
# Calls that run a text, or unpack an archive to any place that its entries name.
RUNNING = ("eval", "exec", "compile", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput")
UNPACKING = ("extract", "extractall")
NETWORK = (
    "urllib.request", "http.client", "requests", "httpx", "aiohttp", "huggingface_hub", "datasets", "ftplib", "smtplib",
)  # fmt: skip

COMPARING = "benchmarks/"  # with PyTorch, which is not used for loading
# Each of these fetches only what a user named: a dump, a data set, a model.
FETCHING = {"data_utils/text/download.py", "data_utils/hub_dataset.py", "checkpoints/pretrained/hub_model.py"}
# Subclasses the unpickler to resolve only the names of tensors.
UNPICKLING_TENSORS = "checkpoints/pretrained/pytorch_file.py"
# These make markup from text that they have escaped themselves.
MAKING_MARKUP = {"reports/html.py", "reports/charts.py"}


def sources() -> list[Path]:
    found = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [*found, *sorted(ROOT.glob("*.py"))]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and name_of(node.func).endswith("import_module"):
            yield from (str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant))


def calls_of(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call))


def name_of(node: ast.expr) -> str:
    """Return ``a.b.c`` for a name with attributes."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "…"


def keyword(call: ast.Call, name: str) -> object:
    return next((getattr(k.value, "value", ...) for k in call.keywords if k.arg == name), None)


def test_nothing_unsafe_is_done() -> None:
    problems = [f"{place_of(path)} {problem}" for path in sources() for problem in problems_in(path)]
    assert not problems, "\n".join(problems)


def place_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def problems_in(path: Path) -> Iterator[str]:
    place = place_of(path)
    names = set(imports_of(path))
    for name in names:
        first = name.split(".")[0]
        compares = first == "torch" and place.startswith(COMPARING)
        if first in UNPICKLING and not compares and (name, place) != ("pickle", UNPICKLING_TENSORS):
            yield f"imports {name}: nothing but tensors is unpickled"
        if name.startswith(NETWORK) and place not in FETCHING:
            yield f"imports {name}: the network is for what users name"
    archives = any(name.split(".")[0] in ("tarfile", "zipfile") for name in names)
    for call in calls_of(path):
        yield from (f"line {call.lineno}: {problem}" for problem in problems_of(call, place, archives))


def problems_of(call: ast.Call, place: str, archives: bool = True) -> Iterator[str]:
    name = name_of(call.func)
    last = name.rpartition(".")[2]
    if name in RUNNING:
        yield f"{name} runs a text"
    if last == "unpack_archive" or (last in UNPACKING and archives):
        yield f"{name} unpacks an archive: read its entries one by one, within one folder"
    if keyword(call, "shell") not in (None, False):
        yield "a shell: give the words of the command"
    if name in ("np.load", "numpy.load") and keyword(call, "allow_pickle") is not False:
        yield "np.load without allow_pickle=False"
    if name in ("torch.load", "pd.read_pickle", "pickle.load", "pickle.loads", "pickle.Unpickler"):
        yield f"{name} unpickles"
    if name in ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"):
        yield f"{name}: use yaml.safe_load"
    if last == "load_model" and keyword(call, "safe_mode") is False:
        yield "load_model runs code of the file"
    if name in ("tempfile.mktemp", "mktemp"):
        yield f"{name} is a race"
    if last == "Markup" and place not in MAKING_MARKUP and not all(map(is_ours, call.args)):
        yield "markup of a text that was not escaped: use element()"


def is_ours(argument: ast.expr) -> bool:
    """Return whether a text is written in the code, or is its style sheet."""
    if isinstance(argument, ast.IfExp):
        return is_ours(argument.body) and is_ours(argument.orelse)
    return isinstance(argument, ast.Constant) or "STYLE" in ast.dump(argument)


@pytest.mark.parametrize(
    "code",
    [
        "eval(text)", "np.load(path)", "np.load(path, allow_pickle=True)", "yaml.load(text)", "os.system(x)",
        "archive.extractall(folder)", "subprocess.run(text, shell=True)", "torch.load(path, weights_only=True)",
        "pickle.loads(data)", "Markup(f'<b>{name}</b>')",
    ],
)  # fmt: skip
def test_the_check_sees(code: str) -> None:
    call = next(node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    assert list(problems_of(call, "utilities/x.py"))


def test_the_checks_exceptions_are_there() -> None:
    for place in FETCHING | MAKING_MARKUP | {UNPICKLING_TENSORS}:
        assert (ROOT / place).is_file(), place
