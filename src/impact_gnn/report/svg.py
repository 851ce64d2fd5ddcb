"""Matplotlib figures as inline SVG in the colours of the page, in light and dark mode.

Figures are drawn in the colours of the light page; inside the page they become style-sheet
variables, and text takes the page's font. As a file they stay as they are.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from impact_gnn._files import digest

INK = "#1b1e23"
FAINT = "#8a929e"
LINE = "#dfe3e8"
PAPER = "#ffffff"  # background of the page
HEAT = "#00457a"  # the dark end of a colour scale
# Colours that tell things apart, also for people who are colour-blind.
PALETTE = ("#0072b2", "#d55e00", "#00916a", "#c2649b", "#c98a00", "#45a5de")
BLUE, ORANGE, *_ = PALETTE
VARIABLES = {
    INK: "currentColor",
    FAINT: "var(--faint)",
    LINE: "var(--line)",
    PAPER: "var(--paper)",
    HEAT: "var(--heat)",
}
VARIABLES |= {colour: f"var(--c{number})" for number, colour in enumerate(PALETTE)}

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "impact-gnn",
    "text.parse_math": False,
    "path.simplify": False,
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "legend.borderpad": 0,
}
STEPS = [1, 2, 2.5, 5, 10]  # distances of ticks
LEGEND_LETTERS = 64  # of a row of the legend, with the samples of the lines
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))

Called: TypeAlias = Callable[[int], str]
"""The user's name of a time."""


def canvas(width: float = 360, height: float = 220) -> Figure:
    """A figure that the page scales; a letter is about 10 units high."""
    return Figure(figsize=(width / 72, height / 72), layout="constrained")


def single_panel(width: float = 360, height: float = 220) -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    figure = canvas(width, height)
    return figure, figure.subplots()


def render(figure: Figure, title: str) -> tuple[str, Markup]:
    """The drawing as a file, and as part of a page with a title for readers."""
    _add_legend(figure)
    out = io.StringIO()
    # `savefig` draws everything twice
    FigureCanvasSVG(figure).print_svg(out, metadata=NO_METADATA)
    return out.getvalue(), _for_page(out.getvalue(), title)


def _add_legend(figure: Figure) -> None:
    """Add the labels of all axes below the drawing, which stays as high as it is."""
    labels = [name for ax in figure.axes for name in ax.get_legend_handles_labels()[1]]
    if not labels:
        return
    width = max(map(len, labels)) + 6
    columns = max(1, LEGEND_LETTERS // width)
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * rows)
    figure.legend(loc="outside lower left", ncols=columns)


def _for_page(text: str, title: str) -> Markup:
    """Matplotlib's SVG as part of a page: no addresses, fonts or styles, few digits, unique ids."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"\s*\n\s*", " ", text)
    # Figures may use the same ids for their clip paths; a page may hold an id only once.
    unique = digest(text)[:8]
    # text between tags stays
    text = re.sub(r"<[^>]*>", lambda tag: _clean_tag(tag[0], unique), text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None  # matplotlib always writes one
    head = f'<svg {box[0]} role="img" aria-label="{html.escape(title)}">'
    body = text[text.index(">") + 1 :].strip()
    return Markup(head + body)  # noqa: S704 # nosec B704 - matplotlib has escaped all text


def _clean_tag(tag: str, unique: str) -> str:
    """Clean one tag; `unique` makes the ids of this figure differ from others on the page."""
    tag = re.sub(r' id="(?![mpC][0-9a-f_]{6,})[^"]*"', "", tag)
    tag = re.sub(r'(id="|#)([mpC][0-9a-f_]{6,})', rf"\g<1>f{unique}\g<2>", tag)
    tag = re.sub(r"font-family: [^;\"]+;? ?", "", tag)
    tag = re.sub(r"\d+\.\d{3,}", lambda digits: f"{float(digits[0]):.2f}", tag)
    for colour, variable in VARIABLES.items():
        tag = tag.replace(colour, variable)
    return tag


def over_time(
    ax: Axes, called: Called = str, *, xlabel: str = "period", ylabel: str = "", ticks: int = 6
) -> None:
    """Format a time axis with names by `called`; the y axis begins at zero."""
    names = [short(called(round(end))) for end in ax.get_xlim()]
    if max(map(len, names)) > 5:
        ticks //= 2  # long names, such as dates, need the room of two
    ax.xaxis.set_major_locator(MaxNLocator(ticks, steps=STEPS, integer=True))
    ax.xaxis.set_major_formatter(lambda time, _: short(called(round(time))))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.set_ylim(bottom=0)


def short(name: str) -> str:
    """The name of a period for a tick: that of a bin is where it begins."""
    return name.removesuffix("..").split("T")[0]
