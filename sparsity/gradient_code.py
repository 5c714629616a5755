"""The function ``outer``: gradients of the blocks that exist; see ``machine_code.py``.

T tokens · b block size
"""

from __future__ import annotations

from typing import List, NamedTuple

from sparsity.vector_code import fused, spread

SPAN = 32  # tokens whose activations are copied side by side before ``outer`` goes over the blocks


def _pack_span(b: int) -> List[str]:
    """A function that copies ``count`` rows of x (…, width·b) to (width, SPAN, b), with rows of zeros behind them."""
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
    """The body of ``outer``: sums before, during and after the loop over tokens ``%t``; ``step`` tokens at a time."""

    step: int
    begin: List[str]
    work: List[str]
    stores: List[str]


def _token(b: int, ahead: int) -> List[str]:
    """Addresses of token ``%t`` + ``ahead``: ``%x.ahead`` and ``%y.ahead``."""
    return [
        f"  %t.{ahead} = add i64 %t, {ahead}",
        f"  %at.{ahead} = mul i64 %t.{ahead}, {b}",
        f"  %x.{ahead} = getelementptr float, ptr %x.block, i64 %at.{ahead}",
        f"  %y.{ahead} = getelementptr float, ptr %y.block, i64 %at.{ahead}",
    ]


def _rows_of_sums(b: int) -> _Sums:
    """A vector for each row of the block: one number of x times a row of dy."""
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
    """A vector for the whole of a small block, and several tokens at a time, each with sums of its own."""
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
    """Adds a vector to what the block's gradient holds, which is nothing before the first span."""
    return [
        f"  %g.{name} = getelementptr float, ptr %g, i64 {offset}",
        f"  %old.{name} = load {v}, ptr %g.{name}, align 4",
        f"  %kept.{name} = select i1 %fresh, {v} zeroinitializer, {v} %old.{name}",
        f"  %new.{name} = fadd {v} %kept.{name}, {value}",
        f"  store {v} %new.{name}, ptr %g.{name}, align 4",
    ]


def outer_text(b: int) -> str:
    """The function ``outer`` for blocks of ``b``."""
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
