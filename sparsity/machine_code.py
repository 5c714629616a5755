"""Writes the inner loops of block-sparse products as code that LLVM compiles for this processor.

There are two functions for each block size b. In ``product``, each output block of a tile of tokens is a sum over the
blocks of its column; the tile's sums stay in registers, one vector of b numbers per token, and the rows of a block are
read once for the whole tile. In ``outer``, the gradient of each block is a sum of outer products over tokens, which is
kept in b registers.

The same loops in numba are 13 times slower in 16×16 blocks: its compiler does not keep the sums in registers.

Needs llvmlite.

T tokens · t tokens of a tile · b block size · n blocks
"""

from __future__ import annotations

import functools
from typing import Callable, List, Sequence, Union

from llvmlite import ir

FLOAT, INDEX, SIZE = ir.FloatType(), ir.IntType(32), ir.IntType(64)
Number = Union[int, ir.Value]  # of type SIZE
Values = List[ir.Value]


def module_text(block_size: int, tokens: int, side: int) -> str:
    """Return the LLVM module with the functions ``product`` and ``outer`` for one block size.

    ``product(x, blocks, starts, sources, y, scratch, first, last, inputs, columns)`` sets rows ``first`` … ``last`` - 1
    of ``y`` (T, columns·b) from ``x`` (T, inputs·b): column c is the sum over k from ``starts[c]`` to ``starts[c + 1]``
    of input block ``sources[k]`` times ``blocks[k]`` (b, b). ``scratch`` has room for inputs·b·tokens numbers.

    ``outer(x, dy, rows, columns, gradients, xs, ys, first, last, tokens, inputs, outputs)`` sets blocks ``first`` …
    ``last`` - 1 of ``gradients`` (n, b, b) to the sums over tokens of ``x[t, rows[k]]``ᵀ · ``dy[t, columns[k]]``.
    ``xs`` has room for inputs·b·side numbers, ``ys`` for outputs·b·side. Numbers are float32, indices int32, sizes
    int64; widths are counted in blocks.

    Tiles of ``product`` have ``tokens`` tokens; ``outer`` copies ``side`` tokens' numbers side by side first.
    """
    module = ir.Module()
    _write_product(_FunctionWriter(module, "product", pointers=6, sizes=4), block_size, tokens)
    _write_outer(_FunctionWriter(module, "outer", pointers=7, sizes=5), block_size, side)
    return str(module)


class _FunctionWriter:
    """Writes one function, whose arguments are pointers to arrays that do not overlap, then sizes."""

    def __init__(self, module: ir.Module, name: str, pointers: int, sizes: int) -> None:
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType()] * pointers + [SIZE] * sizes)
        function = ir.Function(module, kind, name)
        for argument in function.args[:pointers]:
            argument.add_attribute("noalias")
        self.arguments = function.args
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))

    def loop(
        self, start: Number, end: Number, body: Callable[..., Values], sums: Sequence[ir.Value] = (), step: int = 1
    ) -> Values:
        """Write a loop over a counter and return the counter and the sums after it."""
        builder, first = self.builder, [_size(start), *sums]
        before = builder.block
        check, work, after = (builder.append_basic_block(name) for name in ("check", "work", "after"))
        builder.branch(check)
        builder.position_at_end(check)
        carried = [builder.phi(value.type) for value in first]
        builder.cbranch(builder.icmp_signed("<", carried[0], _size(end)), work, after)
        builder.position_at_end(work)
        results = [builder.add(carried[0], _size(step)), *body(*carried)]
        for phi, value, result in zip(carried, first, results):
            phi.add_incoming(value, before)
            phi.add_incoming(result, builder.block)
        builder.branch(check)
        builder.position_at_end(after)
        return carried

    def times(self, a: ir.Value, b: Number) -> ir.Value:
        return self.builder.mul(a, _size(b))

    def at(self, pointer: ir.Value, offset: Number, kind: ir.Type = FLOAT) -> ir.Value:
        return self.builder.gep(pointer, [_size(offset)], source_etype=kind)

    def load(self, pointer: ir.Value, kind: ir.Type = FLOAT) -> ir.Value:
        return self.builder.load(pointer, align=4, typ=kind)

    def index(self, indices: ir.Value, number: Number) -> ir.Value:
        """Return an element of an int32 array as a size."""
        return self.builder.sext(self.load(self.at(indices, number, INDEX), INDEX), SIZE)

    def store(self, value: ir.Value, pointer: ir.Value) -> None:
        self.builder.store(value, pointer, align=4)

    def broadcast(self, number: ir.Value, vector: ir.Type) -> ir.Value:
        """Return a vector whose lanes are all the same number."""
        single = self.builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(INDEX, 0))
        return self.shuffle(single, [0] * vector.count)

    def shuffle(self, vector: ir.Value, lanes: Sequence[int]) -> ir.Value:
        mask = ir.Constant(ir.VectorType(INDEX, len(lanes)), list(lanes))
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """Return a·b + c, computed by one instruction if the processor has it."""
        return self.builder.fadd(self.builder.fmul(a, b, flags=["contract"]), c, flags=["contract"])


def _size(number: Number) -> ir.Value:
    return ir.Constant(SIZE, number) if isinstance(number, int) else number


def _write_product(code: _FunctionWriter, b: int, tokens: int) -> None:
    x, blocks, starts, sources, y, scratch, token, last, inputs, columns = code.arguments
    vector = ir.VectorType(FLOAT, b)
    x_stride, y_stride = code.times(inputs, b), code.times(columns, b)

    def write_tiles(token: ir.Value, t: int) -> ir.Value:
        """Write the loop over whole tiles of ``t`` tokens; return the first token that is left over."""

        def tile(token: ir.Value) -> Values:
            x_tile, y_tile = code.at(x, code.times(token, x_stride)), code.at(y, code.times(token, y_stride))

            def pack(j: ir.Value) -> Values:
                """Copy block j of t rows of x (…, inputs·b) to (inputs, t, b), in which rows share no cache set."""
                source, target = code.at(x_tile, code.times(j, b)), code.at(scratch, code.times(j, b * t))
                for r in range(t):
                    row = code.load(code.at(source, code.times(x_stride, r)), vector)
                    code.store(row, code.at(target, r * b))
                return []

            def column(c: ir.Value) -> Values:
                def block(k: ir.Value, *sums: ir.Value) -> Values:
                    source = code.at(scratch, code.times(code.index(sources, k), t * b))
                    weights = code.at(blocks, code.times(k, b * b))

                    def row(i: ir.Value, *sums: ir.Value) -> Values:
                        weights_row = code.load(code.at(weights, code.times(i, b)), vector)
                        inputs_i = code.at(source, i)
                        numbers = [code.load(code.at(inputs_i, r * b)) for r in range(t)]
                        return [
                            code.multiply_add(code.broadcast(n, vector), weights_row, s) for n, s in zip(numbers, sums)
                        ]

                    return code.loop(0, b, row, sums)[1:]

                zeros = [ir.Constant(vector, None)] * t
                after = code.builder.add(c, _size(1))
                _, *sums = code.loop(code.index(starts, c), code.index(starts, after), block, zeros)
                y_column = code.at(y_tile, code.times(c, b))
                for r, total in enumerate(sums):
                    code.store(total, code.at(y_column, code.times(y_stride, r)))
                return []

            code.loop(0, inputs, pack)
            code.loop(0, columns, column)
            return []

        (left_over,) = code.loop(token, code.builder.sub(last, _size(t - 1)), tile, step=t)
        return left_over

    for t in sorted({tokens, 1}, reverse=True):
        token = write_tiles(token, t)
    code.builder.ret_void()


def _write_outer(code: _FunctionWriter, b: int, side: int) -> None:
    x, dy, rows, columns, gradients, xs, ys, first, last, tokens, inputs, outputs = code.arguments
    vector = ir.VectorType(FLOAT, b)
    is_small = b * b <= 16  # then one vector has a whole block, and several tokens at a time have their own sums
    unrolled = 4 if is_small else 1
    accumulator = ir.VectorType(FLOAT, b * b) if is_small else vector

    def write_pack(source: ir.Value, packed: ir.Value, width: ir.Value, count: ir.Value) -> None:
        """Write the copy of ``count`` rows (…, width·b) to (width, side, b), padded with zeros."""

        def block(j: ir.Value) -> Values:
            source_block = code.at(source, code.times(j, b))
            target = code.at(packed, code.times(j, b * side))

            def copy(r: ir.Value) -> Values:
                row = code.load(code.at(source_block, code.times(r, code.times(width, b))), vector)
                code.store(row, code.at(target, code.times(r, b)))
                return []

            def pad(r: ir.Value) -> Values:
                code.store(ir.Constant(vector, None), code.at(target, code.times(r, b)))
                return []

            (end,) = code.loop(0, count, copy)
            code.loop(end, side, pad)
            return []

        code.loop(0, width, block)

    def add_token_small(x_row: ir.Value, y_row: ir.Value, total: ir.Value) -> ir.Value:
        x_lanes = code.shuffle(code.load(x_row, vector), [lane // b for lane in range(b * b)])  # x₀ x₀ … x₁ x₁ …
        y_lanes = code.shuffle(code.load(y_row, vector), [lane % b for lane in range(b * b)])  # y₀ y₁ … y₀ y₁ …
        return code.multiply_add(x_lanes, y_lanes, total)

    def add_token(x_row: ir.Value, y_row: ir.Value, sums: Sequence[ir.Value]) -> Values:
        dy_row = code.load(y_row, vector)
        numbers = [code.load(code.at(x_row, i)) for i in range(b)]
        return [
            code.multiply_add(code.broadcast(number, vector), dy_row, total) for number, total in zip(numbers, sums)
        ]

    def span(start: ir.Value) -> Values:
        is_first = code.builder.icmp_signed("==", start, _size(0))
        left = code.builder.sub(tokens, start)
        count = code.builder.select(code.builder.icmp_signed("<", left, _size(side)), left, _size(side))
        for source, packed, width in ((x, xs, inputs), (dy, ys, outputs)):
            write_pack(code.at(source, code.times(start, code.times(width, b))), packed, width, count)

        def block(k: ir.Value) -> Values:
            x_block = code.at(xs, code.times(code.index(rows, k), b * side))
            y_block = code.at(ys, code.times(code.index(columns, k), b * side))

            def token(t: ir.Value, *sums: ir.Value) -> Values:
                x_row, y_row = code.at(x_block, code.times(t, b)), code.at(y_block, code.times(t, b))
                if not is_small:
                    return add_token(x_row, y_row, sums)
                return [
                    add_token_small(code.at(x_row, w * b), code.at(y_row, w * b), total) for w, total in enumerate(sums)
                ]

            zeros = [ir.Constant(accumulator, None)] * (unrolled if is_small else b)
            _, *sums = code.loop(0, side, token, zeros, step=unrolled)
            if is_small:
                sums = [functools.reduce(code.builder.fadd, sums)]
            gradient = code.at(gradients, code.times(k, b * b))
            for i, total in enumerate(sums):
                address = code.at(gradient, i * b)
                before = code.builder.select(is_first, ir.Constant(accumulator, None), code.load(address, accumulator))
                code.store(code.builder.fadd(before, total), address)
            return []

        code.loop(first, last, block)
        return []

    code.loop(0, tokens, span, step=side)
    code.builder.ret_void()
