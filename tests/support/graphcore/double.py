"""A strict double of Graphcore's packages, generated from their published signatures.

An unknown name, argument or setting fails, and every call is recorded. Parts that must compute for training are in
``computing.py``; everything else returns None.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib.machinery
import inspect
import sys
import types
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple

from tests.support.graphcore.signatures import PublishedClass, PublishedModule, published_modules

ADAPTER = "graphcore.platform"  # imports Graphcore's packages
SKIPPED = {"call", "build", "get_config", "compute_output_shape", "from_config", "__init__", "__enter__", "__exit__"}


class Call(NamedTuple):
    """A call of a published function, constructor (by the class's name) or method."""

    name: str
    arguments: Dict[str, Any]


class Recorder:
    def __init__(self) -> None:
        self.calls: list[Call] = []

    def called(self, name: str) -> list[dict[str, Any]]:
        """Return the arguments of all calls whose name ends in ``name``."""
        return [call.arguments for call in self.calls if call.name == name or call.name.endswith(f".{name}")]

    def record(self, name: str, signature: inspect.Signature, args: tuple, kwargs: dict, first: int = 0) -> None:
        """Check a call against its signature and keep it."""
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}{signature}: {error}") from None
        given = dict(list(bound.arguments.items())[first:])
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                given.update(given.pop(parameter.name, {}))
        self.calls.append(Call(name, given))


def checked(
    recorder: Recorder, name: str, signature: inspect.Signature, function: Callable | None, first: int = 0
) -> Callable:
    """Return ``function``, or a function that does nothing, with a check of its calls."""

    def call(*args: Any, **kwargs: Any) -> Any:
        recorder.record(name, signature, args, kwargs, first)
        return None if function is None else function(*args, **kwargs)

    return functools.wraps(function)(call) if function is not None else call


def make_class(recorder: Recorder, name: str, published: PublishedClass, base: type | None) -> type:
    """Make a class with only the published methods, or with those of ``base``, with checks of their calls."""
    short = name.rpartition(".")[2]
    if published.is_enumeration and base is None:
        return enum.Enum(short, published.members, module=name.rpartition(".")[0])
    body: dict[str, Any] = {}
    if "__init__" in published.methods:
        constructor = published.methods["__init__"]

        def construct(self: Any, *args: Any, **kwargs: Any) -> None:
            recorder.record(name, constructor, (self, *args), kwargs, first=1)
            if base is not None:
                base.__init__(self, *args, **kwargs)

        body["__init__"] = construct
    for method, signature in published.methods.items():
        own = getattr(base, method, None)
        if method not in SKIPPED and (base is None or own is not None):
            body[method] = checked(recorder, f"{name}.{method}", signature, own, first=1)
    return type(short, (base or object,), body)


class Settings:
    """One level of IPUConfig, with the published attributes and defaults, and no others."""

    _published: Mapping[str, tuple[str, str]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._published:
            raise AttributeError(f"{type(self).__name__} has no setting {name}")
        super().__setattr__(name, value)

    def to_dict(self, prefix: str = "") -> dict[str, Any]:
        """Return the values by dotted name."""
        values: dict[str, Any] = {}
        for name in self._published:
            value = getattr(self, name)
            values.update(value.to_dict(f"{prefix}{name}.") if isinstance(value, Settings) else {prefix + name: value})
        return values


def make_settings(recorder: Recorder, module: str, published: PublishedModule, members: dict[str, Any]) -> None:
    """Make the classes of ``tensorflow.python.ipu.config`` for settings."""

    def make(name: str) -> type:
        description = published.classes[name]

        def construct(self: Any, *args: Any, **kwargs: Any) -> None:
            recorder.record(f"{module}.{name}", description.methods["__init__"], (self, *args), kwargs, first=1)
            for setting, (kind, default) in description.settings.items():
                holds_settings = kind in published.classes and published.classes[kind].settings
                setattr(self, setting, members[kind]() if holds_settings else eval(default, dict(members)))

        body: dict[str, Any] = {"__init__": construct, "_published": description.settings}
        for method, signature in description.methods.items():
            if method != "__init__":
                body[method] = checked(recorder, f"{module}.{name}.{method}", signature, lambda self, *_, **__: self, 0)
        return type(name, (Settings,), body)

    for name, description in published.classes.items():
        if description.settings:
            members[name] = make(name)


def make_modules(recorder: Recorder, computing: Mapping[str, Any]) -> dict[str, types.ModuleType]:
    """Make the modules by name; ``computing`` has functions and classes by dotted name that do what is published."""
    modules: dict[str, types.ModuleType] = {}
    for name, published in published_modules().items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None)
        module.__path__ = []
        members = module.__dict__
        for function, signature in published.functions.items():
            full = f"{name}.{function}"
            members[function] = checked(recorder, full, signature, computing.get(full))
        for kind, description in published.classes.items():
            if not description.settings:
                members[kind] = make_class(recorder, f"{name}.{kind}", description, computing.get(f"{name}.{kind}"))
        make_settings(recorder, name, published, members)
        modules[name] = module
    for name, module in modules.items():
        parent, _, short = name.rpartition(".")
        if parent in modules:
            setattr(modules[parent], short, module)
    return modules


@contextlib.contextmanager
def installed(computing: Mapping[str, Any] | None = None) -> Iterator[Recorder]:
    """Make Graphcore's packages importable within the block, and forget the modules that imported them afterwards."""
    recorder = Recorder()
    modules = make_modules(recorder, computing or {})
    before = {name: sys.modules.get(name) for name in [*modules, ADAPTER]}
    sys.modules.update(modules)
    sys.modules.pop(ADAPTER, None)
    try:
        yield recorder
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
