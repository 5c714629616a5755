"""The notes of PyTorch's files: a pickle, read as the list of instructions that it is, and never run.

Python's documentation of pickletools describes the instructions. Only those that put numbers, texts, lists, dicts and
tensors together are known here; a name is looked up in a table of stand-ins, and nothing is ever imported.
"""

from __future__ import annotations

import pickletools
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple


class NotesError(ValueError):
    """The notes ask for something that is no part of tensors."""


class Name(NamedTuple):
    """What a name stands for, and whether it may be called."""

    value: Any
    callable: bool = True


Names = Mapping[Tuple[str, str], Name]

_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: Dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_LITERALS = (
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "SHORT_BINSTRING", "BINSTRING",
)  # fmt: skip
_IGNORED = ("PROTO", "FRAME")


def read_notes(data: bytes, names: Names, storage: Callable[[Any], Any]) -> Any:
    """The value that the notes describe.

    Args:
        data: the pickle.
        names: (module, name) → what it stands for; any other name is refused.
        storage: makes the stand-in of a storage from its persistent id.

    Raises:
        NotesError: a name or an instruction that tensors do not need.
        ValueError: the notes are damaged.
    """
    reader = _Reader(names, storage)
    try:
        for instruction, argument, _ in pickletools.genops(data):
            if instruction.name == "STOP":
                return reader.pop()
            reader.follow(instruction.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its notes are damaged, {type(error).__name__}") from error
    raise ValueError("its notes end too early")


class _Reader:
    """A stack, and a memory of values by number."""

    def __init__(self, names: Names, storage: Callable[[Any], Any]) -> None:
        self._names = names
        self._storage = storage
        self._stack: List[Any] = []
        self._memory: Dict[int, Any] = {}

    def pop(self) -> Any:
        """The topmost value."""
        value = self._stack.pop()
        if value is _MARK:
            raise IndexError("a mark in the place of a value")
        return value

    def follow(self, name: str, argument: Any) -> None:
        """One instruction.

        Raises:
            NotesError: it is not one that tensors need.
        """
        stack = self._stack
        if name in _IGNORED:
            return
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("GLOBAL", "INST"):
            module, _, inner = argument.partition(" ")
            stack.append(self._look_up(module, inner))
        elif name == "STACK_GLOBAL":
            inner, module = self.pop(), self.pop()
            stack.append(self._look_up(module, inner))
        elif name == "BINPERSID":
            stack.append(self._storage(self.pop()))
        elif name == "REDUCE":
            arguments, called = self.pop(), self.pop()
            if not (isinstance(called, Name) and called.callable and isinstance(arguments, tuple)):
                raise NotesError("it calls what is no part of a tensor")
            stack.append(called.value(*map(_value, arguments)))
        elif name == "BUILD":
            self.pop()  # attributes beside the values, such as a module's versions
        else:
            self._collect(name, argument)

    def _look_up(self, module: str, name: str) -> Name:
        if (module, name) not in self._names:
            raise NotesError(f"it asks for {module}.{name}, which is no part of a tensor")
        return self._names[module, name]

    def _collect(self, name: str, argument: Any) -> None:
        stack, memory = self._stack, self._memory
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            values = [self.pop() for _ in range(size)][::-1]
            stack.append(tuple(map(_value, values)))
        elif name == "TUPLE":
            stack.append(tuple(map(_value, self._since_mark())))
        elif name in ("APPEND", "APPENDS"):
            values = [self.pop()] if name == "APPEND" else self._since_mark()
            stack[-1].extend(map(_value, values))
        elif name in ("SETITEM", "SETITEMS"):
            values = [self.pop(), self.pop()][::-1] if name == "SETITEM" else self._since_mark()
            stack[-1].update(zip(values[::2], map(_value, values[1::2])))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memory[argument] = stack[-1]
        elif name == "MEMOIZE":
            memory[len(memory)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memory[argument])
        else:
            raise NotesError(f"it has the instruction {name}, which tensors do not need")

    def _since_mark(self) -> List[Any]:
        values: List[Any] = []
        while self._stack[-1] is not _MARK:
            values.append(self._stack.pop())
        self._stack.pop()
        return values[::-1]


def _value(item: Any) -> Any:
    """What a name stands for, where it is no function."""
    return item.value if isinstance(item, Name) and not item.callable else item
