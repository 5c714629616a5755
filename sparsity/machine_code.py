"""The inner loops of block-sparse products as LLVM's intermediate representation (IR), compiled for this processor.

There are two functions for each block size b. In ``product`` each output block of a tile of tokens is a sum over the
blocks of its column; the sums of the tile stay in registers, one vector of b numbers per token, while the rows of a
block are read once for the whole tile. In ``outer`` the gradient of each block is a sum over tokens of outer products,
kept in b registers.

The same loops in numba, which would need no IR, are 13 times slower in 16×16 blocks: its compiler does not keep the
sums in registers.

T tokens · t tokens of a tile · b block size · n blocks
"""

from __future__ import annotations

from typing import List, NamedTuple

SPAN = 32  # tokens whose activations ``outer`` copies side by side before it loops over the blocks


def tile_tokens(block_size: int, vector_registers: int, register_floats: int) -> int:
    """Return the tokens of a tile whose sums fit into three quarters of the processor's vector registers.

    Args:
        block_size: b.
        vector_registers: number of registers.
        register_floats: float32 numbers in one register.
    """
    needed = max(1, block_size // register_floats)  # registers for one vector of b numbers
    return max(1, vector_registers * 3 // 4 // needed)


def module_text(block_size: int, tokens: int) -> str:
    """Return the IR of a module with the functions ``product`` and ``outer`` for one block size.

    ``product(x, blocks, starts, sources, y, scratch, first, last, inputs, columns)`` sets rows ``first`` … ``last`` - 1
    of ``y`` (T, columns·b) from ``x`` (T, inputs·b): column c is the sum over k from ``starts[c]`` to ``starts[c + 1]``
    of input block ``sources[k]`` times ``blocks[k]`` (b, b). ``scratch`` has room for inputs·b·tokens numbers.

    ``outer(x, dy, rows, columns, gradients, xs, ys, first, last, tokens, inputs, outputs)`` sets blocks ``first`` …
    ``last`` - 1 of ``gradients`` (n, b, b) to the sums over tokens of ``x[t, rows[k]]``ᵀ · ``dy[t, columns[k]]``.
    ``xs`` has room for inputs·b·SPAN numbers, ``ys`` for outputs·b·SPAN. Numbers are float32, indices int32, sizes
    int64; widths are counted in blocks.
    """
    return "\n".join([_product(block_size, tokens), _outer(block_size)])


def _tile(b: int, t: int) -> List[str]:
    """Write the function for one tile of ``t`` tokens; ``packed`` is (inputs, t, b), ``y`` its first row."""
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
    """Write the function that copies ``t`` rows of x (…, inputs·b) to (inputs, t, b), where rows share no cache set."""
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
    """Write a loop over whole tiles of ``t`` tokens from ``begin``; its counter ends at the first token left over."""
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


# Instructions on vectors


def fused(kind: str, out: str, a: str, b: str, c: str) -> List[str]:
    """Write out = a·b + c, as one instruction where the processor has it."""
    return [f"  {out}.m = fmul contract {kind} {a}, {b}", f"  {out} = fadd contract {kind} {out}.m, {c}"]


def spread(kind: str, out: str, number: str) -> List[str]:
    """Write a vector whose lanes are all the same number."""
    lanes = kind[1:].split(" ", 1)[0]
    return [
        f"  {out}.i = insertelement {kind} poison, float {number}, i32 0",
        f"  {out} = shufflevector {kind} {out}.i, {kind} poison, <{lanes} x i32> zeroinitializer",
    ]


# Gradients of the blocks


def _pack_span(b: int) -> List[str]:
    """Write the function that copies ``count`` rows of x (…, width·b) to (width, SPAN, b) and pads with zeros."""
    v = f"<{b} x float>"
    return [
        "define internal void @span(ptr noalias %x, ptr noalias %packed, i64 %width, i64 %count) noinline {",
        "entry:",
        f"  %stride = mul i64 %width, {b}",
        "  br label %next",
        "next:",
        "  %j = phi i64 [ 0, %entry ], [ %j.next, %end ]",
        f"  %from.at = mul i64 %j, {b}",
        "  %from = getelementptr float, ptr %x, i64 %from.at",
        f"  %to.at = mul i64 %j, {b * SPAN}",
        "  %to = getelementptr float, ptr %packed, i64 %to.at",
        "  br label %row",
        "row:",
        "  %r = phi i64 [ 0, %next ], [ %r.next, %written ]",
        f"  %t.at = mul i64 %r, {b}",
        "  %t = getelementptr float, ptr %to, i64 %t.at",
        "  %real = icmp slt i64 %r, %count",
        "  br i1 %real, label %copy, label %zero",
        "copy:",
        "  %f.at = mul i64 %r, %stride",
        "  %f = getelementptr float, ptr %from, i64 %f.at",
        f"  %value = load {v}, ptr %f, align 4",
        f"  store {v} %value, ptr %t, align 4",
        "  br label %written",
        "zero:",
        f"  store {v} zeroinitializer, ptr %t, align 4",
        "  br label %written",
        "written:",
        "  %r.next = add i64 %r, 1",
        f"  %r.more = icmp slt i64 %r.next, {SPAN}",
        "  br i1 %r.more, label %row, label %end",
        "end:",
        "  %j.next = add i64 %j, 1",
        "  %more = icmp slt i64 %j.next, %width",
        "  br i1 %more, label %next, label %done",
        "done:",
        "  ret void",
        "}",
    ]


class _Sums(NamedTuple):
    """The body of ``outer``: lines before, in and after the loop over tokens ``%t``, which takes ``step`` at a time."""

    step: int
    begin: List[str]
    work: List[str]
    stores: List[str]


def _token(b: int, ahead: int) -> List[str]:
    """Write the addresses ``%x.ahead`` and ``%y.ahead`` of token ``%t`` + ``ahead``."""
    return [
        f"  %t.{ahead} = add i64 %t, {ahead}",
        f"  %at.{ahead} = mul i64 %t.{ahead}, {b}",
        f"  %x.{ahead} = getelementptr float, ptr %x.block, i64 %at.{ahead}",
        f"  %y.{ahead} = getelementptr float, ptr %y.block, i64 %at.{ahead}",
    ]


def _rows_of_sums(b: int) -> _Sums:
    """Keep a vector for each row of the block: one number of x times a row of dy."""
    v = f"<{b} x float>"
    begin, stores = [], []
    work = [*_token(b, 0), f"  %dy.row = load {v}, ptr %y.0, align 4"]
    for i in range(b):
        begin.append(f"  %a.{i} = phi {v} [ zeroinitializer, %start ], [ %n.{i}, %token ]")
        work += [
            f"  %p.{i} = getelementptr float, ptr %x.0, i64 {i}",
            f"  %v.{i} = load float, ptr %p.{i}, align 4",
            *spread(v, f"%w.{i}", f"%v.{i}"),
            *fused(v, f"%n.{i}", f"%w.{i}", "%dy.row", f"%a.{i}"),
        ]
        stores += _added(v, str(i), f"%n.{i}", i * b)
    return _Sums(1, begin, work, stores)


def _whole_sums(b: int, ways: int) -> _Sums:
    """Keep one vector for a whole small block, and take several tokens at a time, each with its own sums."""
    v, small, lanes = f"<{b * b} x float>", f"<{b} x float>", range(b * b)
    repeated = ", ".join(f"i32 {lane // b}" for lane in lanes)  # x₀ x₀ … x₁ x₁ …
    tiled = ", ".join(f"i32 {lane % b}" for lane in lanes)  # y₀ y₁ … y₀ y₁ …
    begin, work = [], []
    for w in range(ways):
        begin.append(f"  %a.{w} = phi {v} [ zeroinitializer, %start ], [ %n.{w}, %token ]")
        work += [
            *_token(b, w),
            f"  %xs.{w} = load {small}, ptr %x.{w}, align 4",
            f"  %ys.{w} = load {small}, ptr %y.{w}, align 4",
            f"  %xw.{w} = shufflevector {small} %xs.{w}, {small} poison, <{b * b} x i32> <{repeated}>",
            f"  %yw.{w} = shufflevector {small} %ys.{w}, {small} poison, <{b * b} x i32> <{tiled}>",
            *fused(v, f"%n.{w}", f"%xw.{w}", f"%yw.{w}", f"%a.{w}"),
        ]
    stores, total = [], "%n.0"
    for w in range(1, ways):
        stores.append(f"  %total.{w} = fadd {v} {total}, %n.{w}")
        total = f"%total.{w}"
    return _Sums(ways, begin, work, [*stores, *_added(v, "all", total, 0)])


def _added(v: str, name: str, value: str, offset: int) -> List[str]:
    """Write the addition of a vector to the gradient of a block, which counts as zero in the first span."""
    return [
        f"  %g.{name} = getelementptr float, ptr %g, i64 {offset}",
        f"  %old.{name} = load {v}, ptr %g.{name}, align 4",
        f"  %kept.{name} = select i1 %fresh, {v} zeroinitializer, {v} %old.{name}",
        f"  %new.{name} = fadd {v} %kept.{name}, {value}",
        f"  store {v} %new.{name}, ptr %g.{name}, align 4",
    ]


def _outer(b: int) -> str:
    """Write the function ``outer``."""
    sums = _whole_sums(b, ways=4) if b * b <= 16 else _rows_of_sums(b)
    lines = [
        *_pack_span(b),
        "define void @outer(ptr noalias %x, ptr noalias %dy, ptr noalias %rows, ptr noalias %columns,"
        " ptr noalias %gradients, ptr noalias %xs, ptr noalias %ys, i64 %first, i64 %last, i64 %tokens, i64 %inputs,"
        " i64 %outputs) {",
        "entry:",
        f"  %x.stride = mul i64 %inputs, {b}",
        f"  %y.stride = mul i64 %outputs, {b}",
        "  br label %span",
        "span:",
        "  %from = phi i64 [ 0, %entry ], [ %to, %span.end ]",
        "  %fresh = icmp eq i64 %from, 0",
        f"  %to = add i64 %from, {SPAN}",
        "  %left = sub i64 %tokens, %from",
        "  %x.from.at = mul i64 %from, %x.stride",
        "  %x.from = getelementptr float, ptr %x, i64 %x.from.at",
        "  %y.from.at = mul i64 %from, %y.stride",
        "  %y.from = getelementptr float, ptr %dy, i64 %y.from.at",
        "  call void @span(ptr %x.from, ptr %xs, i64 %inputs, i64 %left)",
        "  call void @span(ptr %y.from, ptr %ys, i64 %outputs, i64 %left)",
        "  br label %block.check",
        "block.check:",
        "  %k = phi i64 [ %first, %span ], [ %k.next, %token.end ]",
        "  %k.more = icmp slt i64 %k, %last",
        "  br i1 %k.more, label %start, label %span.end",
        "start:",
        "  %k.next = add i64 %k, 1",
        "  %row.p = getelementptr i32, ptr %rows, i64 %k",
        "  %row.n = load i32, ptr %row.p, align 4",
        "  %row = sext i32 %row.n to i64",
        f"  %x.at = mul i64 %row, {b * SPAN}",
        "  %x.block = getelementptr float, ptr %xs, i64 %x.at",
        "  %column.p = getelementptr i32, ptr %columns, i64 %k",
        "  %column.n = load i32, ptr %column.p, align 4",
        "  %column = sext i32 %column.n to i64",
        f"  %y.at = mul i64 %column, {b * SPAN}",
        "  %y.block = getelementptr float, ptr %ys, i64 %y.at",
        f"  %g.at = mul i64 %k, {b * b}",
        "  %g = getelementptr float, ptr %gradients, i64 %g.at",
        "  br label %token",
        "token:",
        "  %t = phi i64 [ 0, %start ], [ %t.next, %token ]",
        *sums.begin,
        *sums.work,
        f"  %t.next = add i64 %t, {sums.step}",
        f"  %t.more = icmp slt i64 %t.next, {SPAN}",
        "  br i1 %t.more, label %token, label %token.end",
        "token.end:",
        *sums.stores,
        "  br label %block.check",
        "span.end:",
        "  %span.more = icmp slt i64 %to, %tokens",
        "  br i1 %span.more, label %span, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)
