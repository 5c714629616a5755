"""Imports what a run imports, and compares the double of Graphcore's packages with their code.

Run by ``test_double.py`` on the emulation.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Iterator, List

from tests.emulation.refusals import not_refused
from tests.support.graphcore.signatures import PublishedModule, published_modules
from tests.support.graphcore.training_path import training_path

CONFIG = "tensorflow.python.ipu.config"


def parameters(signature: inspect.Signature) -> List[Any]:
    """Return the names and kinds of the parameters, and whether each has a default."""
    return [(one.name, one.kind, one.default is one.empty) for one in signature.parameters.values()]


def functions(module: Any, published: PublishedModule) -> Iterator[Any]:
    """Yield name, real function and published signature of all functions and methods."""
    for name, signature in published.functions.items():
        yield name, getattr(module, name, None), signature
    for name, description in published.classes.items():
        for method, signature in description.methods.items():
            function = inspect.getattr_static(getattr(module, name), method, None)
            yield f"{name}.{method}", getattr(function, "__func__", function), signature


def other_signatures() -> Iterator[str]:
    for name, published in published_modules().items():
        if name.startswith("popdist"):
            continue  # which have no public code
        module = importlib.import_module(name)
        for function, real, signature in functions(module, published):
            if real is None or parameters(inspect.signature(real)) != parameters(signature):
                yield f"{name}.{function}{signature}: {real and inspect.signature(real)}"


def other_defaults(config: Any, kind: str, prefix: str = "") -> Iterator[str]:
    """Return the settings of the system that have another default."""
    module, classes = importlib.import_module(CONFIG), published_modules()[CONFIG].classes
    for name, (of, default) in classes[kind].settings.items():
        value = getattr(config, name)
        if of in classes and classes[of].settings:
            yield from other_defaults(value, of, f"{prefix}{name}.")
        elif value != eval(default, vars(module)):
            yield f"{prefix}{name}: {value}"


if __name__ == "__main__":
    for path in training_path():
        importlib.import_module(path)
    config = importlib.import_module(CONFIG).IPUConfig()
    problems = [*not_refused(), *other_signatures(), *other_defaults(config, "IPUConfig")]
    print("\n".join(problems))
    raise SystemExit(bool(problems))
