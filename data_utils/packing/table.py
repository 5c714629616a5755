"""Before and after packing, as a table."""

from __future__ import annotations

from data_utils.packing.plan import PackingPlan


def before_and_after(plan: PackingPlan, unpacked_max_seq_length: int) -> str:
    """What packing makes of a data set.

    Args:
        plan: of the packs.
        unpacked_max_seq_length: tokens of a record before, padding included.

    Example:
        >>> from data_utils.packing import plan_packing
        >>> print(before_and_after(plan_packing([0, 4, 2, 0, 0], 5, 2), 5))
                              before     after
        rows of 5 tokens           6         3
        sequences in a row      1.00      2.00
        real tokens               14        14
        padding tokens            16         1
        efficiency           46.67 %   93.33 %
        padding removed: 15 tokens, 93.8 %; packing factor 2.000
        No plan with at most 2 sequences in a pack has fewer packs.
    """
    packs, sequences, tokens = plan.number_of_packs, plan.number_of_sequences, plan.number_of_tokens
    room = sequences * unpacked_max_seq_length, packs * plan.max_sequence_length
    padding = room[0] - tokens, room[1] - tokens
    same = unpacked_max_seq_length == plan.max_sequence_length
    sizes = [unpacked_max_seq_length, plan.max_sequence_length]
    rows = [
        ("", "before", "after"),
        (f"rows of {sizes[0]} tokens" if same else "rows", f"{sequences:,}", f"{packs:,}"),
        *([] if same else [("tokens of a row", *map(str, sizes))]),
        ("sequences in a row", "1.00", f"{plan.packing_factor:.2f}"),
        ("real tokens", f"{tokens:,}", f"{tokens:,}"),
        ("padding tokens", f"{padding[0]:,}", f"{padding[1]:,}"),
        ("efficiency", *(f"{100 * _share(tokens, all_tokens):.2f} %" for all_tokens in room)),
    ]
    widths = [max(len(row[column]) for row in rows) + 3 * (column > 0) for column in range(3)]
    lines = [f"{label:<{widths[0]}}{old:>{widths[1]}}{new:>{widths[2]}}".rstrip() for label, old, new in rows]
    removed = padding[0] - padding[1]
    lines.append(
        f"padding removed: {removed:,} tokens, {100 * _share(removed, padding[0]):.1f} %;"
        f" packing factor {plan.packing_factor:.3f}"
    )
    lines.append(_how_near(plan))
    return "\n".join(lines)


def _how_near(plan: PackingPlan) -> str:
    """How far the plan is from the best there can be, as far as that is known."""
    limit = f"with at most {plan.max_sequences_in_a_pack} sequences in a pack"
    more = plan.number_of_packs - plan.fewest_packs
    if not more:
        return f"No plan {limit} has fewer packs."
    return f"Every plan {limit} has {plan.fewest_packs:,} packs or more; this one {more:,} more than that."


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
