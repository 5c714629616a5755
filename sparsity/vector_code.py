"""Instructions on vectors, as lines of LLVM's intermediate representation."""

from __future__ import annotations

from typing import List


def fused(kind: str, out: str, a: str, b: str, c: str) -> List[str]:
    """out = a·b + c, fused where the processor can."""
    return [f"  {out}.m = fmul contract {kind} {a}, {b}", f"  {out} = fadd contract {kind} {out}.m, {c}"]


def spread(kind: str, out: str, number: str) -> List[str]:
    """A vector of one number."""
    lanes = kind[1:].split(" ", 1)[0]
    return [
        f"  {out}.i = insertelement {kind} poison, float {number}, i32 0",
        f"  {out} = shufflevector {kind} {out}.i, {kind} poison, <{lanes} x i32> zeroinitializer",
    ]
