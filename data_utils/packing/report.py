"""Shows the effect of packing on a data set as a table."""

from __future__ import annotations

from data_utils.packing.plan import PackingPlan
from utilities.tables import aligned


def before_and_after(plan: PackingPlan, unpacked_max_seq_length: int) -> str:
    """Return the table of rows, tokens and padding before and after packing.

    Example:
        >>> from data_utils.packing.plan import plan_packing
        >>> print(before_and_after(plan_packing([0, 4, 2, 0, 0], 5, 2), 5))
                             before    after
        rows                      6        3
        tokens of a row           5        5
        sequences in a row     1.00     2.00
        real tokens              14       14
        padding tokens           16        1
        efficiency          46.67 %  93.33 %
        padding removed: 15 tokens, 93.8 %; packing factor 2.000
        No plan with at most 2 sequences in a pack has fewer packs.
    """
    packs, sequences, tokens = plan.number_of_packs, plan.number_of_sequences, plan.number_of_tokens
    capacity = sequences * unpacked_max_seq_length, packs * plan.max_sequence_length
    padding = capacity[0] - tokens, capacity[1] - tokens
    rows = [
        ("", "before", "after"),
        ("rows", f"{sequences:,}", f"{packs:,}"),
        ("tokens of a row", f"{unpacked_max_seq_length}", f"{plan.max_sequence_length}"),
        ("sequences in a row", "1.00", f"{plan.packing_factor:.2f}"),
        ("real tokens", f"{tokens:,}", f"{tokens:,}"),
        ("padding tokens", f"{padding[0]:,}", f"{padding[1]:,}"),
        ("efficiency", _percent(tokens, capacity[0], 2), _percent(tokens, capacity[1], 2)),
    ]
    lines = list(aligned(rows, "<>"))
    removed = padding[0] - padding[1]
    lines.append(
        f"padding removed: {removed:,} tokens, {_percent(removed, padding[0], 1)};"
        f" packing factor {plan.packing_factor:.3f}"
    )
    limit = f"with at most {plan.max_sequences_in_a_pack} sequences in a pack"
    more = packs - plan.fewest_packs
    lines.append(
        f"Every plan {limit} has {plan.fewest_packs:,} packs or more; this one {more:,} more than that."
        if more
        else f"No plan {limit} has fewer packs."
    )
    return "\n".join(lines)


def _percent(part: int, whole: int, digits: int) -> str:
    return f"{100 * part / whole if whole else 100:.{digits}f} %"
