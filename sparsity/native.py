"""Computes block-sparse products by code that LLVM compiles for this processor at the first use.

Threads share the tokens (``product``) or the blocks (``outer``). Each number is summed by one thread, always in the
same order, so the result does not depend on the number of threads.

T tokens · I inputs · O outputs · n blocks · b block size
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, NamedTuple, Tuple

import numpy as np

from utilities.environment import usable_cores

BLOCK_SIZES = (4, 8, 16)  # blocks of a single weight would not use the vector units
SPAN = 32  # tokens whose activations ``outer`` copies side by side before it loops over the blocks
_ALIGNMENT = 64  # bytes; TensorFlow uses arrays with this alignment without a copy


class Functions(NamedTuple):
    """The compiled functions for one block size; see :func:`sparsity.machine_code.module_text`."""

    product: Callable[..., None]
    outer: Callable[..., None]
    tokens: int
    engine: Any


class Layout(NamedTuple):
    """A pattern as index arrays for the products.

    Attributes:
        rows: (n,) input block of each block, in the order of storage: by column, then by row.
        columns: (n,) output block of each block.
        by_column: (O/b + 1,) index of the first block of each output block.
        by_row: (I/b + 1,) the same for input blocks, in the order ``transposed``.
        transposed: (n,) the blocks ordered by row, then by column.
        transposed_columns: (n,) output block of each block in that order.
    """

    rows: np.ndarray
    columns: np.ndarray
    by_column: np.ndarray
    by_row: np.ndarray
    transposed: np.ndarray
    transposed_columns: np.ndarray


def make_layout(positions: np.ndarray, inputs: int, outputs: int) -> Layout:
    """Return the layout of the pattern ``positions`` (n,), ascending, in a grid of ``inputs`` × ``outputs`` blocks."""
    rows, columns = positions % inputs, positions // inputs
    transposed = np.argsort(rows, kind="stable")
    return Layout(
        np.ascontiguousarray(rows, np.int32),
        np.ascontiguousarray(columns, np.int32),
        _starts(columns, outputs),
        _starts(rows, inputs),
        transposed,
        np.ascontiguousarray(columns[transposed], np.int32),
    )


def _starts(numbers: np.ndarray, count: int) -> np.ndarray:
    ends = np.cumsum(np.bincount(numbers, minlength=count))
    return np.concatenate([[0], ends]).astype(np.int32)


def is_available() -> bool:
    """Return whether llvmlite, the Python package of LLVM, is installed."""
    return importlib.util.find_spec("llvmlite") is not None


def product(x: np.ndarray, blocks: np.ndarray, layout: Layout, threads: int = 0) -> np.ndarray:
    """Return x (T, I) · W, (T, O); here and below, ``threads`` = 0 means one thread per processor."""
    return _product(x, blocks, layout.by_column, layout.rows, threads)


def input_gradient(dy: np.ndarray, blocks: np.ndarray, layout: Layout, threads: int = 0) -> np.ndarray:
    """Return dy (T, O) · Wᵀ, (T, I)."""
    turned = np.ascontiguousarray(blocks[layout.transposed].transpose(0, 2, 1))
    return _product(dy, turned, layout.by_row, layout.transposed_columns, threads)


def weight_gradient(x: np.ndarray, dy: np.ndarray, layout: Layout, block_size: int, threads: int = 0) -> np.ndarray:
    """Return the pattern's blocks of xᵀ · dy, (n, b, b)."""
    call, n = compiled(block_size).outer, len(layout.rows)
    gradients = _empty((n, block_size, block_size))
    if not len(x):
        gradients[:] = 0
        return gradients
    fixed = [_pointer(array) for array in (x, dy, layout.rows, layout.columns, gradients)]
    sizes = (len(x), x.shape[1] // block_size, dy.shape[1] // block_size)

    def part(first: int, last: int) -> None:
        xs, ys = _empty((x.shape[1] * SPAN,)), _empty((dy.shape[1] * SPAN,))
        call(*fixed, _pointer(xs), _pointer(ys), first, last, *sizes)

    _share(n, 1, part, threads)
    return gradients


def _product(x: np.ndarray, blocks: np.ndarray, starts: np.ndarray, sources: np.ndarray, threads: int) -> np.ndarray:
    b = blocks.shape[-1]
    functions, inputs, columns = compiled(b), x.shape[1] // b, len(starts) - 1
    y = _empty((len(x), columns * b))
    fixed = [_pointer(array) for array in (x, blocks, starts, sources, y)]

    def part(first: int, last: int) -> None:
        scratch = _empty((x.shape[1] * functions.tokens,))
        functions.product(*fixed, _pointer(scratch), first, last, inputs, columns)

    _share(len(x), functions.tokens, part, threads)
    return y


def _share(count: int, unit: int, part: Callable[[int, int], None], threads: int) -> None:
    """Call ``part(first, last)`` in several threads, each for a share of ``count`` that is a multiple of ``unit``."""
    pool, processors = _threads()
    threads = min(threads or processors, processors)
    share = -(-count // (threads * unit)) * unit
    parts = [(first, min(first + share, count)) for first in range(0, count, share)] if count else []
    waiting = [pool.submit(part, *bounds) for bounds in parts[1:]]
    for bounds in parts[:1]:
        part(*bounds)
    for future in waiting:
        future.result()


@functools.lru_cache(maxsize=None)
def _threads() -> Tuple[ThreadPoolExecutor, int]:
    count = usable_cores()
    return ThreadPoolExecutor(max(1, count - 1), "block-sparse"), count


def _empty(shape: Tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape)) * 4
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(np.float32).reshape(shape)


def _pointer(array: np.ndarray) -> int:
    assert array.flags.c_contiguous and array.dtype in (np.float32, np.int32), (array.strides, array.dtype)
    return array.ctypes.data


@functools.lru_cache(maxsize=None)
def compiled(block_size: int) -> Functions:
    import llvmlite.binding as llvm

    from sparsity.machine_code import module_text  # needs llvmlite

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=3
    )
    registers, floats = (32, 16) if features.get("avx512f") else (16, 8) if features.get("avx2") else (16, 4)
    registers_per_token = max(1, block_size // floats)
    tokens = max(1, registers * 3 // 4 // registers_per_token)  # of a tile whose sums fit into most registers
    module = llvm.parse_assembly(module_text(block_size, tokens, SPAN))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    pointers, numbers = [ctypes.c_void_p], [ctypes.c_int64]
    product_type = ctypes.CFUNCTYPE(None, *(pointers * 6 + numbers * 4))
    outer_type = ctypes.CFUNCTYPE(None, *(pointers * 7 + numbers * 5))
    return Functions(
        product_type(engine.get_function_address("product")),
        outer_type(engine.get_function_address("outer")),
        tokens,
        engine,
    )
