"""The inner loops of block-sparse products as LLVM's intermediate representation, compiled for this processor.

Two functions for each block size b. ``product``: each output block of a tile of tokens is a sum over the blocks of its
column; the tile's sums stay in registers, one vector of b numbers for each token, while a block's rows are read once
for the whole tile. ``outer``: the gradient of each block is a sum over tokens of outer products, b vectors in
registers.

T tokens · t tokens of a tile · b block size
"""

from __future__ import annotations

from typing import List

from sparsity.gradient_code import outer_text
from sparsity.vector_code import fused, spread


def tile_tokens(block_size: int, vector_registers: int, register_floats: int) -> int:
    """Tokens of a tile whose sums fit a processor's registers, a quarter of which is left for what is multiplied.

    Args:
        vector_registers: how many there are.
        register_floats: float32 numbers in one.
    """
    needed = max(1, block_size // register_floats)  # registers for one vector of b numbers
    return max(1, vector_registers * 3 // 4 // needed)


def module_text(block_size: int, tokens: int) -> str:
    """A module with the functions ``product`` and ``outer`` for one block size.

    ``product(x, blocks, starts, sources, y, scratch, first, last, inputs, columns)`` sets rows ``first`` … ``last`` - 1
    of ``y`` (T, columns·b) from ``x`` (T, inputs·b): column c is the sum over k from ``starts[c]`` to ``starts[c + 1]``
    of input block ``sources[k]`` times ``blocks[k]`` (b, b). ``scratch`` holds inputs·b·tokens numbers.

    ``outer(x, dy, rows, columns, gradients, xs, ys, first, last, tokens, inputs, outputs)`` sets blocks ``first`` …
    ``last`` - 1 of ``gradients`` (n, b, b) to the sums over tokens of ``x[t, rows[k]]``ᵀ · ``dy[t, columns[k]]``.
    ``xs`` holds inputs·b·SPAN numbers, ``ys`` outputs·b·SPAN. All numbers are float32, indices int32, sizes int64 and
    in blocks where they are widths.
    """
    return "\n".join([_product(block_size, tokens), outer_text(block_size)])


def _tile(b: int, t: int) -> List[str]:
    """A function that makes one tile of ``t`` tokens; ``packed`` is (inputs, t, b), ``y`` the tile's first row."""
    v = f"<{b} x float>"
    phis = [f"  %a{r} = phi {v} [ zeroinitializer, %column ], [ %n{r}, %row.end ]" for r in range(t)]
    inner = [f"  %s{r} = phi {v} [ %a{r}, %block ], [ %n{r}, %row ]" for r in range(t)]
    work: List[str] = []
    for r in range(t):
        work += [
            f"  %p{r} = getelementptr float, ptr %source.row, i64 {r * b}",
            f"  %x{r} = load float, ptr %p{r}, align 4",
            *spread(v, f"%w{r}", f"%x{r}"),
            *fused(v, f"%n{r}", f"%w{r}", "%weights", f"%s{r}"),
        ]
    stores: List[str] = []
    for r in range(t):
        stores += [
            f"  %o{r}.row = mul i64 %stride, {r}",
            f"  %o{r} = getelementptr float, ptr %y.column, i64 %o{r}.row",
            f"  store {v} %a{r}, ptr %o{r}, align 4",
        ]
    return [
        f"define internal void @tile{t}(ptr noalias %packed, ptr noalias %blocks, ptr noalias %starts,"
        " ptr noalias %sources, ptr noalias %y, i64 %columns) noinline {",
        "entry:",
        f"  %stride = mul i64 %columns, {b}",
        "  br label %column",
        "column:",
        "  %c = phi i64 [ 0, %entry ], [ %c.next, %column.end ]",
        "  %start.p = getelementptr i32, ptr %starts, i64 %c",
        "  %start.n = load i32, ptr %start.p, align 4",
        "  %start = sext i32 %start.n to i64",
        "  %c.next = add i64 %c, 1",
        "  %end.p = getelementptr i32, ptr %starts, i64 %c.next",
        "  %end.n = load i32, ptr %end.p, align 4",
        "  %end = sext i32 %end.n to i64",
        f"  %y.at = mul i64 %c, {b}",
        "  %y.column = getelementptr float, ptr %y, i64 %y.at",
        "  br label %check",
        "check:",
        "  %k = phi i64 [ %start, %column ], [ %k.next, %row.end ]",
        *phis,
        "  %more = icmp slt i64 %k, %end",
        "  br i1 %more, label %block, label %column.end",
        "block:",
        "  %source.p = getelementptr i32, ptr %sources, i64 %k",
        "  %source.n = load i32, ptr %source.p, align 4",
        "  %source = sext i32 %source.n to i64",
        f"  %source.at = mul i64 %source, {t * b}",
        "  %source.block = getelementptr float, ptr %packed, i64 %source.at",
        f"  %block.at = mul i64 %k, {b * b}",
        "  %block.p = getelementptr float, ptr %blocks, i64 %block.at",
        "  br label %row",
        "row:",
        "  %i = phi i64 [ 0, %block ], [ %i.next, %row ]",
        *inner,
        f"  %weights.at = mul i64 %i, {b}",
        "  %weights.p = getelementptr float, ptr %block.p, i64 %weights.at",
        f"  %weights = load {v}, ptr %weights.p, align 4",
        "  %source.row = getelementptr float, ptr %source.block, i64 %i",
        *work,
        "  %i.next = add i64 %i, 1",
        f"  %i.more = icmp slt i64 %i.next, {b}",
        "  br i1 %i.more, label %row, label %row.end",
        "row.end:",
        "  %k.next = add i64 %k, 1",
        "  br label %check",
        "column.end:",
        *stores,
        "  %c.more = icmp slt i64 %c.next, %columns",
        "  br i1 %c.more, label %column, label %done",
        "done:",
        "  ret void",
        "}",
    ]


def _pack(b: int, t: int) -> List[str]:
    """A function that copies ``t`` rows of x (…, inputs·b) to (inputs, t, b), where rows share no cache sets."""
    v = f"<{b} x float>"
    copies: List[str] = []
    for r in range(t):
        copies += [
            f"  %f{r}.row = mul i64 %stride, {r}",
            f"  %f{r} = getelementptr float, ptr %from, i64 %f{r}.row",
            f"  %v{r} = load {v}, ptr %f{r}, align 4",
            f"  %t{r} = getelementptr float, ptr %to, i64 {r * b}",
            f"  store {v} %v{r}, ptr %t{r}, align 4",
        ]
    return [
        f"define internal void @pack{t}(ptr noalias %x, ptr noalias %packed, i64 %inputs) noinline {{",
        "entry:",
        f"  %stride = mul i64 %inputs, {b}",
        "  br label %next",
        "next:",
        "  %j = phi i64 [ 0, %entry ], [ %j.next, %next ]",
        f"  %from.at = mul i64 %j, {b}",
        "  %from = getelementptr float, ptr %x, i64 %from.at",
        f"  %to.at = mul i64 %j, {b * t}",
        "  %to = getelementptr float, ptr %packed, i64 %to.at",
        *copies,
        "  %j.next = add i64 %j, 1",
        "  %more = icmp slt i64 %j.next, %inputs",
        "  br i1 %more, label %next, label %done",
        "done:",
        "  ret void",
        "}",
    ]


def _over_tokens(t: int, label: str, begin: str, before: str) -> List[str]:
    """A loop over whole tiles of ``t`` tokens from ``begin``; it leaves the first token that is left over."""
    return [
        f"  br label %{label}.check",
        f"{label}.check:",
        f"  %{label} = phi i64 [ {begin}, %{before} ], [ %{label}.next, %{label}.work ]",
        f"  %{label}.next = add i64 %{label}, {t}",
        f"  %{label}.fits = icmp sle i64 %{label}.next, %last",
        f"  br i1 %{label}.fits, label %{label}.work, label %{label}.end",
        f"{label}.work:",
        f"  %{label}.x.at = mul i64 %{label}, %x.stride",
        f"  %{label}.x = getelementptr float, ptr %x, i64 %{label}.x.at",
        f"  %{label}.y.at = mul i64 %{label}, %y.stride",
        f"  %{label}.y = getelementptr float, ptr %y, i64 %{label}.y.at",
        f"  call void @pack{t}(ptr %{label}.x, ptr %scratch, i64 %inputs)",
        f"  call void @tile{t}(ptr %scratch, ptr %blocks, ptr %starts, ptr %sources, ptr %{label}.y, i64 %columns)",
        f"  br label %{label}.check",
        f"{label}.end:",
    ]


def _product(b: int, t: int) -> str:
    sizes = sorted({t, 1}, reverse=True)
    lines: List[str] = []
    for size in sizes:
        lines += [*_tile(b, size), *_pack(b, size)]
    lines += [
        "define void @product(ptr noalias %x, ptr noalias %blocks, ptr noalias %starts, ptr noalias %sources,"
        " ptr noalias %y, ptr noalias %scratch, i64 %first, i64 %last, i64 %inputs, i64 %columns) {",
        "entry:",
        f"  %x.stride = mul i64 %inputs, {b}",
        f"  %y.stride = mul i64 %columns, {b}",
    ]
    begin, before = "%first", "entry"
    for size in sizes:
        lines += _over_tokens(size, f"by{size}", begin, before)
        begin, before = f"%by{size}", f"by{size}.end"
    return "\n".join([*lines, "  ret void", "}"])
