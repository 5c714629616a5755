"""Charts as inline SVG, drawn by matplotlib in the colours of the page's light or dark theme."""

from __future__ import annotations

import io
import logging
import re
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from markupsafe import Markup, escape

from utilities.secrets import mask

# matplotlib writes colours as hexadecimal numbers. These are placeholders for CSS variables of the page.
_THEME = {"#010203": "var(--ink)", "#020304": "var(--faint)"}
_INK, _FAINT = _THEME
_LINES = {f"#0304{number:02x}": f"var(--line-{number})" for number in range(1, 9)}
_REFERENCES = {"#060708": "var(--reference-1)", "#070809": "var(--reference-2)"}


MOST_CURVES = len(_LINES)

_LONG_NAME = 30  # characters, of which two do not stand side by side
_SIZE = (4.4, 2.9)  # inches; the SVG scales with the page, and is as wide as a phone then


class Curve(NamedTuple):
    name: str
    steps: Sequence[float]
    values: Sequence[float]


class Chart(NamedTuple):
    title: str
    svg: Markup


class Table(NamedTuple):
    """Rows, each with the values by their headings, and a title."""

    title: str
    rows: List[Dict[str, str]]


def draw(
    identifier: str,
    title: str,
    unit: str,
    curves: Sequence[Curve],
    references: Sequence[Tuple[str, float]] = (),
    from_zero: bool = False,
    axis: str = "step",
) -> Chart:
    """Draw values against the step.

    Args:
        identifier: id of the SVG; curve number i becomes the group ``{identifier}-curve-{i}``.
        curves: at most ``MOST_CURVES``; long ones are thinned.
        references: names and heights of at most two horizontal lines to compare with.
        from_zero: whether the vertical axis starts at 0, for values whose small changes do not matter.
        unit, axis: labels of the vertical and the horizontal axis.
    """

    def plot(figure: Any, axes: Any) -> None:
        for number, (curve, colour) in enumerate(zip(map(_thinned, curves), _LINES)):
            marker = "o" if len(curve.steps) == 1 else None
            axes.plot(
                curve.steps,
                curve.values,
                color=colour,
                linewidth=1.8,
                marker=marker,
                label=_label(curve.name),
                gid=f"{identifier}-curve-{number}",
            )
        for number, ((name, height), colour) in enumerate(zip(references, _REFERENCES)):
            label = f"{_label(name)}: {height:.3f}"
            gid = f"{identifier}-reference-{number}"
            axes.axhline(height, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), label=label, gid=gid)
        axes.set_xlabel(axis)
        axes.set_ylabel(unit)
        axes.margins(x=0.02)
        axes.ticklabel_format(axis="y", scilimits=(-3, 6), useMathText=False)
        if from_zero:
            axes.set_ylim(bottom=0)
        if len(curves) + len(references) > 1:
            columns = 1 if max(map(len, axes.get_legend_handles_labels()[1])) > _LONG_NAME else 2
            figure.legend(loc="outside lower left", ncols=columns, frameon=False, fontsize=8)

    return _drawn(identifier, title, plot)


def scatter(identifier: str, title: str, points: Sequence[Tuple[float, float]], axis: str, unit: str) -> Chart:
    """Draw points, and the line on which both numbers are equal; ``axis`` and ``unit`` label the axes."""

    def plot(figure: Any, axes: Any) -> None:
        colour, (line, _) = next(iter(_LINES)), _REFERENCES
        x, y = zip(*points)
        ends = min(*x, *y), max(*x, *y)
        axes.plot(ends, ends, color=line, linewidth=1.2, linestyle=(0, (4, 3)), gid=f"{identifier}-reference-0")
        axes.scatter(x, y, s=9, color=colour, alpha=0.6, linewidths=0, gid=f"{identifier}-points")
        axes.set_xlabel(axis)
        axes.set_ylabel(unit)

    return _drawn(identifier, title, plot)


def _drawn(identifier: str, title: str, plot: Callable[[Any, Any], None]) -> Chart:
    """Return the chart that ``plot`` draws into a figure and its axes."""
    # Imported here because it takes half a second, which only drawing needs.
    import matplotlib
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # keeps its search for fonts out of the run's log

    settings: Any = {
        "svg.fonttype": "none",  # text is kept as text, which is small, searchable, and in the page's font
        "svg.hashsalt": identifier,  # makes equal data give equal files
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _FAINT,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "font.size": 9,
        "path.simplify_threshold": 0.05,
        "text.usetex": False,
        "text.parse_math": False,  # a metric's name may contain a dollar sign
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        figure.patch.set_alpha(0)
        axes.patch.set_alpha(0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=_FAINT, linewidth=0.6, alpha=0.5)
        plot(figure, axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return Chart(title, _inline(buffer.getvalue(), identifier, title))


def _label(name: str) -> str:
    """Strip leading underscores, because matplotlib omits labels that begin with one from the legend."""
    return mask(name).lstrip("_") or "value"


def _inline(document: str, identifier: str, title: str) -> Markup:
    """Extract the ``<svg>`` from matplotlib's file and adapt it for a page with several charts."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    # Identifiers are only unique within a file.
    svg = re.sub(rf'(\bid="|url\(#|href="#)(?!{re.escape(identifier)}-)', rf"\g<1>{identifier}-", svg)
    for colour, variable in {**_THEME, **_LINES, **_REFERENCES}.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r' (?:width|height)="[^"]*"', "", svg, count=2)  # those of the whole, which are the first
    heading = escape(mask(title))
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{heading}" ', 1)
    return Markup(svg)


def _thinned(curve: Curve, most: int = 1500) -> Curve:
    """Reduce a curve to at most ``most`` points by averaging neighbours."""
    count = len(curve.steps)
    if count <= most:
        return curve
    edges = [round(i * count / most) for i in range(most + 1)]
    spans: List[slice] = [slice(a, b) for a, b in zip(edges, edges[1:])]
    return Curve(
        curve.name,
        [curve.steps[span][-1] for span in spans],
        [sum(curve.values[span]) / len(curve.values[span]) for span in spans],
    )
