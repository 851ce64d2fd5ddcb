"""Matplotlib figures as inline SVG in the colours of the page, in light and dark mode.

Figures are drawn in the colours of the light page; inside the page they become style-sheet
variables, and text takes the page's font. As a file they stay as they are.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from impact_gnn._files import digest

INK = "#1b1e23"
FAINT = "#8a929e"
LINE = "#dfe3e8"
PAPER, HEAT = "#ffffff", "#00457a"  # background of the page, and the dark end of a colour scale
# Colours that tell things apart, also for people who are colour-blind.
PALETTE = ("#0072b2", "#d55e00", "#00916a", "#c2649b", "#c98a00", "#45a5de")
VARIABLES = {INK: "currentColor", FAINT: "var(--faint)", LINE: "var(--line)"}
VARIABLES |= {PAPER: "var(--paper)", HEAT: "var(--heat)"}
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
}
STEPS = [1, 2, 2.5, 5, 10]  # distances of ticks
LEGEND_ROW = 16  # height of a legend entry in a file
MARKS = {"line": "2.4", "dash": '2.4" stroke-dasharray="5 3', "area": "9", "dot": "9"}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))

Called: TypeAlias = Callable[[int], str]
"""The user's name of a time."""


@dataclass(frozen=True)
class Key:
    """A legend entry; `mark` is "line", "dash", "area" or "dot"."""

    name: str
    colour: str  # of the light page
    mark: str = "line"

    @property
    def variable(self) -> str:
        """The colour inside a page."""
        return VARIABLES.get(self.colour, self.colour)


@contextlib.contextmanager
def axes(width: float, height: float) -> Iterator[Axes]:
    """Axes in the style of the page, which scales them; a letter is about 10 units high."""
    with mpl.rc_context(STYLE):
        yield Figure(figsize=(width / 72, height / 72), layout="constrained").add_subplot()


def _svg_file(ax: Axes) -> str:
    """The figure of these axes as an SVG file."""
    out = io.StringIO()
    figure = ax.figure
    assert isinstance(figure, Figure)  # not a part of another
    with mpl.rc_context(STYLE):
        # `savefig` draws everything twice
        FigureCanvasSVG(figure).print_svg(out, metadata=NO_METADATA)
    return out.getvalue()


def render(ax: Axes, title: str, keys: Sequence[Key]) -> tuple[str, Markup]:
    """The drawing as a file with its legend, and as part of a page with a title for readers."""
    text = _svg_file(ax)
    return _with_legend(text, keys), _for_page(text, title)


def _with_legend(text: str, keys: Sequence[Key]) -> str:
    """Add legend entries below an SVG; drawing it again with a legend would take 0.1 seconds."""
    box = re.search(r'height="([\d.]+)pt" viewBox="0 0 [\d.]+ [\d.]+"', text)
    assert box is not None  # matplotlib always writes one
    height = float(box[1])
    rows = []
    taller = box[0].replace(box[1], f"{height + LEGEND_ROW * len(keys):g}")
    for place, key in enumerate(keys):
        y = height + LEGEND_ROW * place + 6
        rows.append(
            f'<line x1="8" x2="26" y1="{y:g}" y2="{y:g}" stroke="{key.colour}" '
            f'stroke-width="{MARKS[key.mark]}"/>'
            f'<text x="32" y="{y + 4:g}" style="font: 10px sans-serif; fill: {INK}">'
            f"{html.escape(key.name)}</text>"
        )
    return text.replace(box[0], taller).replace("</svg>", f"{''.join(rows)}</svg>")


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
    ax: Axes,
    ylabel: str = "",
    xlabel: str = "period",
    *,
    across: int = 6,
    up: int = 5,
    top: float | None = None,
    called: Called | None = None,
) -> None:
    """Format a time axis, with names by `called` if there is one; the y axis begins at zero."""
    low, high = (round(end) for end in ax.get_xlim())
    wide = called is not None and max(len(short(called(end))) for end in (low, high)) > 5
    ax.ticklabel_format(axis="x", useOffset=False, style="plain")
    ax.xaxis.set_major_locator(
        MaxNLocator(across // 2 if wide else across, steps=STEPS, integer=True)
    )
    if called is not None:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda time, _: short(called(round(time)))))
    ax.set(xlabel=xlabel, ylabel=ylabel)
    from_zero(ax, top, up)


def short(name: str) -> str:
    """The name of a period for a tick: that of a bin is where it begins."""
    return name.removesuffix("..").split("T")[0]


def from_zero(ax: Axes, top: float | None = None, ticks: int = 5) -> None:
    """The y axis begins at zero; a flat line of zeros still gets some height."""
    highest = ax.get_ylim()[1] if top is None else top
    ax.set_ylim(0, highest if highest > 1e-9 else 1.0)
    ax.yaxis.set_major_locator(MaxNLocator(ticks, steps=STEPS))


def in_percent(ax: Axes) -> None:
    """Shares on the y axis as percent, with no more digits than they need."""
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{round(100 * share, 3):g}%"))
