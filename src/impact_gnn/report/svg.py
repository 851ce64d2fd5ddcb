"""Matplotlib figures as inline SVG whose colours come from the page, so that they follow light and dark mode.

Figures are drawn in the colours of the light page; inside the page they become style-sheet
variables, and text takes the page's font. As a file, or on a notebook's axes, they stay as they
are.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from impact_gnn._files import digest

INK, FAINT, LINE = "#1b1e23", "#8a929e", "#dfe3e8"
# Colours that tell things apart, also for people who are colour-blind.
PALETTE = ("#0072b2", "#d55e00", "#00916a", "#c2649b", "#c98a00", "#45a5de")
VARIABLES = {INK: "currentColor", FAINT: "var(--faint)", LINE: "var(--line)"}
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
LETTER = 6.2  # width of one
# of a key in a file
ROW, MARKS = (
    16,
    {"line": "2.4", "dash": '2.4" stroke-dasharray="5 3', "area": "9", "dot": "9"},
)
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
RAMP = LinearSegmentedColormap.from_list("early to late", ["#3b78d8", "#a65fb5", "#e0812c"])

Called: TypeAlias = Callable[[int], str]
"""What a person calls a time."""

CANVAS: ContextVar[Callable[..., Figure]] = ContextVar("CANVAS", default=Figure)
"""What makes figures: pyplot's `figure` for those that a notebook is to show."""


@contextlib.contextmanager
def axes(width: float, height: float) -> Iterator[Axes]:
    """Axes in the style of the page; a letter is about 10 units high, and the page scales them."""
    make = CANVAS.get()
    layout = None if make is Figure else "constrained"
    with mpl.rc_context(STYLE):
        yield make(figsize=(width / 72, height / 72), layout=layout).add_subplot()


def file(ax: Axes) -> str:
    """What was drawn on axes, as an SVG file."""
    out, figure = io.StringIO(), ax.figure
    assert isinstance(figure, Figure)  # not a part of another
    with mpl.rc_context(STYLE):
        _make_room(figure)
        # `savefig` draws everything twice
        FigureCanvasSVG(figure).print_svg(out, metadata=NO_METADATA)
    return out.getvalue()


def _make_room(figure: Figure) -> None:
    """Margins by the letters of ticks and labels: to measure them takes as long as to draw; the font is the page's."""
    left, bottom, right = 8.0, 4.0, 8.0
    for ax in figure.axes:
        across, up = (
            [t for t in axis.get_ticklabels() if t.get_visible()] for axis in (ax.xaxis, ax.yaxis)
        )
        below, beside = (
            max((len(text.get_text()) for text in texts), default=0) for texts in (across, up)
        )
        turned = any(text.get_rotation() for text in across)
        lines = 1 + ax.get_ylabel().count("\n") if ax.get_ylabel() else 0
        left = max(left, LETTER * beside + 14 * lines + 12)
        bottom = max(
            bottom,
            (LETTER * below if turned else 14 * bool(below)) + 15 * bool(ax.get_xlabel()) + 8,
        )
        right = max(right, 0 if turned else LETTER * below / 2)
    width, height = 72 * figure.get_size_inches()
    figure.subplots_adjust(
        left / width, bottom / height, 1 - right / width, 1 - 8 / height, hspace=0.25
    )


def drawn(ax: Axes, title: str, keys: Sequence[dict[str, str]]) -> tuple[str, Markup]:
    """What was drawn on axes: a file that stands by itself, and for a page, with a title for those who cannot see.

    What a notebook is to show is drawn by the notebook.
    """
    if CANVAS.get() is not Figure:
        return "", Markup()
    text = file(ax)
    return keyed(text, keys), clean(text, title)


def keyed(text: str, keys: Sequence[dict[str, str]]) -> str:
    """An SVG file with its key below, a line each; drawing it once more with a legend takes a tenth of a second."""
    box = re.search(r'height="([\d.]+)pt" viewBox="0 0 [\d.]+ [\d.]+"', text)
    assert box is not None  # matplotlib always writes one
    height, mark, rows = float(box[1]), "", []
    taller = box[0].replace(box[1], f"{height + ROW * len(keys):g}")
    for place, key in enumerate(keys):
        y = height + ROW * place + 6
        mark = f'<line x1="8" x2="26" y1="{y:g}" y2="{y:g}" stroke="{key["plain"]}" stroke-width="{MARKS[key["mark"]]}"/>'
        name = f'<text x="32" y="{y + 4:g}" style="font: 10px sans-serif; fill: {INK}">{html.escape(key["name"])}</text>'
        rows.append(mark + name)
    return text.replace(box[0], taller).replace("</svg>", f"{''.join(rows)}</svg>")


def clean(text: str, title: str) -> Markup:
    """Matplotlib's SVG as part of a page: no addresses, no fonts, no styles of its own, few digits, unique names."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"\s*\n\s*", " ", text)
    unique = digest(text)[:8]
    # what stands between tags is kept
    text = re.sub(r"<[^>]*>", lambda tag: _clean_tag(tag[0], unique), text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None  # matplotlib always writes one
    head = f'<svg {box[0]} role="img" aria-label="{html.escape(title)}">'
    return Markup(head + text[text.index(">") + 1 :].strip())  # noqa: S704 # nosec B704 - matplotlib has escaped all text


def _clean_tag(tag: str, unique: str) -> str:
    """One tag of matplotlib's; `unique` tells the names of this figure from those of others on the page."""
    tag = re.sub(r' id="(?![mpC][0-9a-f_]{6,})[^"]*"', "", tag)
    tag = re.sub(r'(id="|#)([mpC][0-9a-f_]{6,})', rf"\g<1>f{unique}\g<2>", tag)
    tag = re.sub(r"font-family: [^;\"]+;? ?", "", tag)
    tag = re.sub(r"\d+\.\d{3,}", lambda digits: f"{float(digits[0]):.2f}", tag)
    for colour, variable in VARIABLES.items():
        tag = tag.replace(colour, variable)
    return tag


def ramp(position: float) -> str:
    """A colour between early (0) and late (1); neither end vanishes on white or on black."""
    return to_hex(RAMP(float(position)))  # a whole number would be an index


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
    """Times on the x axis, whole numbers written out or `called` by their names; the y axis begins at zero."""
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


def line(points: int) -> dict[str, Any]:
    """Markers where there are few points."""
    return {"marker": "o", "markersize": 3.5} if points <= 25 else {}
