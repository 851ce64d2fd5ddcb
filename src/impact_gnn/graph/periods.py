"""`Periods`: maps times to ordered whole numbers, and back to names that users know.

A graph's time is a whole number per node. Years and other whole numbers are kept; dates fall into
calendar periods or into bins of equal counts, chosen so that there are enough labels in each and
not hundreds of them.
"""

from __future__ import annotations

import datetime
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn._array import sorted_unique
from impact_gnn.checks import MAX_PERIODS, InputError, quoted
from impact_gnn.encoding.moments import parse

UNITS = ("year", "quarter", "month", "week", "day", "hour")
RULES = ("auto", *UNITS, "whole")
"""Values of `period` besides a number of bins: chosen, a calendar unit, whole numbers."""

LARGEST = 1 << 53  # whole numbers up to which floats tell them apart, as borders of bins are
MOST = 200  # distinct whole numbers, or periods, that are taken without binning
BINS = 12  # periods aimed at
LEAST_BINS, MOST_LABELLED = 5, 120  # labelled periods that a calendar unit should give
ENOUGH = 20  # labelled nodes in a period
PER_BIN = 50  # labelled nodes per bin, by which bins are counted
# Probability below which nodes without a label at the end of a period are no accident.
CHANCE = 1e-3
DAY = 86_400_000_000  # microseconds
MONDAY = 4 * DAY  # 1970 began on a Thursday; weeks begin on Mondays
LENGTHS = {"week": (7 * DAY, MONDAY), "day": (DAY, 0), "hour": (DAY // 24, 0)}
"""Lengths of units and the beginning of their period 0, in microseconds."""
MONTHS = {"year": 12, "quarter": 3, "month": 1}
JANUARY_1970 = 12 * 1970  # months since year 0
NUMPY_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}


@dataclass(frozen=True)
class Periods:
    """A calendar unit, or bins by their first values (microseconds since 1970 if `dated`).

    Examples:
        >>> quarters = Periods("quarter")
        >>> dates = np.array(["2021-07-01", "2021-12-31"], "M8[us]")
        >>> quarters.of(dates).tolist(), quarters.name(8086)
        ([8086, 8087], '2021-Q3')
        >>> bins = Periods("bins", False, (0, 10, 30), 39)
        >>> quarters.cutoff("2021-07-01"), bins.of(np.array([5, 30, 70])).tolist()
        (8086, [0, 2, 5])
    """

    unit: str
    dated: bool = True
    starts: tuple[float, ...] = ()
    # The last value when the bins were made; later ones go on in bins of the usual width.
    end: float = 0.0
    # number of the first bin: beyond all values, so that none is taken for the other
    first: int = 0

    def of(self, values: ndarray) -> ndarray:
        """The period of every value."""
        if self.unit in MONTHS:
            months = values.astype("M8[M]").astype(np.int64)
            return (months + JANUARY_1970) // MONTHS[self.unit]
        number = values.astype("M8[us]").astype(np.int64) if self.dated else values
        if self.unit in LENGTHS:
            length, origin = LENGTHS[self.unit]
            return (number - origin) // length
        # Values before the first bin belong to it; later ones go on in bins of the usual width.
        # Position of the last bin that begins at or before the value.
        last = np.searchsorted(np.array(self.starts), number, side="right") - 1
        inside = np.maximum(last, 0)
        # Whole widths after the end of the last bin.
        beyond = len(self.starts) + np.maximum(number - self.end, 0) // self._width
        position = np.where(number > self.end, beyond, inside)
        return self.first + position.astype(np.int64)

    def start(self, period: int) -> Any:
        """Its first moment (datetime64[us]) or number."""
        if self.unit in MONTHS:
            # The inverse of `of`: months since January 1970.
            months = int(period) * MONTHS[self.unit] - JANUARY_1970
            return np.datetime64(months, "M").astype("M8[us]")
        if self.unit in LENGTHS:
            length, origin = LENGTHS[self.unit]
            number: float = period * length + origin
        elif (place := period - self.first) < len(self.starts):
            number = self.starts[max(place, 0)]
        else:
            number = self.end + (place - len(self.starts)) * self._width
        return np.datetime64(int(number), "us") if self.dated else number

    def name(self, period: int) -> str:
        """What a person calls it."""
        first = self.start(period)
        if self.unit == "bins":
            if not self.dated:
                return f"{first:.15g}.."
            return _short(first.astype("M8[s]")) + ".."
        if self.unit == "quarter":
            return f"{period // 4}-Q{period % 4 + 1}"
        if self.unit == "week":
            return first.item().strftime("%G-W%V")
        return str(first.astype(f"M8[{NUMPY_UNITS[self.unit]}]"))

    def cutoff(self, value: Any) -> int:
        """The period that begins at a date, or has this name; refuses a date within a period."""
        point = _point(value, self.dated)
        # Neither a date nor a number: perhaps the name of a bin.
        if point is None:
            period = self._named(str(value).strip())
            if period is None:
                kind = "a date such as 2021-07-01, or a period's name" if self.dated else "a number"
                raise InputError(f"cutoff={quoted(value)} is not a point in time; pass {kind}.")
            return period
        period = int(self.of(np.array([point]))[0])
        # Labels would end within a period.
        if self.start(period) != point:
            raise InputError(
                f"cutoff={quoted(value)} is inside the period {self.name(period)}; "
                f"use the start of {self._with_start(period)} or {self._with_start(period + 1)}, "
                "or finer periods."
            )
        return period

    def _with_start(self, period: int) -> str:
        return f"{self.name(period)} ({_short(self.start(period))})"

    def _named(self, text: str) -> int | None:
        if self.unit != "bins":
            return None
        # One more than there are bins: the cutoff may lie behind the last one.
        every = range(self.first, self.first + len(self.starts) + 1)
        by_name = {self.name(period): period for period in every[::-1]}
        return by_name.get(text)

    @property
    def _width(self) -> float:
        mean = (self.end - self.starts[0]) / len(self.starts)
        return max(mean, 1.0)


def exact_times(time: ndarray) -> ndarray:
    """Return times as floats; of dates, days since 1970."""
    exact = time.astype(np.float64)
    if time.dtype.kind == "M":
        exact /= DAY
    return exact


def choose(
    values: ndarray,
    labelled: ndarray | None,
    rule: str | int | Periods | None = "auto",
    cutoff: Any = None,
) -> tuple[Periods | None, str]:
    """Choose periods for times (numbers or datetime64[us]), with a sentence about them.

    `labelled` marks the nodes with a label: periods are to have enough of those before the cutoff,
    and none is to contain both the last label and the first target. Labels at or after the
    cutoff do not matter, whichever are there. Without a cutoff, periods are those of the times
    alone, and labels of the last one do not matter, unless labels end within a period: then a
    period begins there. A few nodes without a label, as chance leaves them, are no such end.
    """
    dated = values.dtype.kind == "M"
    if isinstance(rule, Periods):
        _refuse_other_kind(rule, dated)
        if rule.unit == "bins":
            return rule, f"{len(rule.starts)} bins, as given"
        return rule, f"a period is a {rule.unit}, as given"
    count = _count(rule)
    if count is None and rule not in (None, *RULES):
        raise InputError(
            f"period={quoted(rule)} is not valid; choose {', '.join(RULES)}, "
            "or a number of periods."
        )
    # Times that are whole numbers may be periods as they are.
    whole = not dated and (np.floor(values) == values).all()
    years = False
    if whole and rule == "year":  # numbers that look like years
        years = values.min() >= 1000 and values.max() < 3000
    if rule in UNITS and not dated and not years:
        such = f"{values[0]:g}" if len(values) else ""
        raise InputError(
            f"period={rule!r} needs dates, but the times are numbers such as {such}; leave it out."
        )
    if rule == "whole" and not whole:
        raise InputError("period='whole' needs whole numbers as times; choose another period.")
    distinct = len(sorted_unique(values))
    are_few = distinct <= MOST
    if rule == "whole" or years or (whole and count is None and are_few):
        return None, f"{distinct} whole numbers, each its own period"
    if rule in UNITS:
        return Periods(str(rule)), f"a period is a {rule}"
    if not dated and np.abs(values).max(initial=0) >= LARGEST:
        raise InputError(
            f"the times reach {values.max():g}, too large to bin exactly; "
            "subtract an offset first, or choose period='whole'."
        )
    return _fit(values, labelled, count, cutoff, distinct)


def _fit(
    values: ndarray, labelled: ndarray | None, count: int | None, cutoff: Any, distinct: int
) -> tuple[Periods, str]:
    """A calendar unit or bins with enough labels in each, for so many `distinct` times."""
    dated = values.dtype.kind == "M"
    number = values.astype(np.int64) if dated else values
    cut = _cut(cutoff, dated)
    # Which nodes periods are made for: labelled ones before the cutoff, if there are any.
    past = np.ones(len(values), bool)
    if cut is not None:
        past = number < cut
    if labelled is not None and (labelled & past).any():
        past = labelled & past
    unit = None
    if dated and count is None:
        unit, border = _calendar(number, past, cut)
    if unit is not None:
        sentence = f"a period is a {unit}, chosen so that each has enough labels"
        if border is None:
            return Periods(unit), f"{sentence} (--period or period=)"
        periods = _split(number, past, unit, border)
        return periods, f"{sentence}; one begins where labels end (--period or period=)"
    starts = _starts(number, past, count, cut)
    periods = Periods(
        unit="bins",
        dated=dated,
        starts=tuple(starts.astype(float).tolist()),
        end=float(number.max()),
        first=0 if dated else _beyond(number),
    )
    return periods, f"{distinct:,} distinct times in {len(starts)} periods of about equal size"


def _beyond(number: ndarray) -> int:
    """A power of ten above all values, so that bin numbers cannot be taken for times."""
    num_digits = len(str(int(np.abs(number).max())))
    return 10 ** (num_digits + 1)


def _refuse_other_kind(periods: Periods, dated: bool) -> None:
    """Refuse periods of dates for numbers, and the reverse."""
    if periods.dated != dated:
        kinds = {True: "dates", False: "numbers"}
        raise InputError(
            f"the times are {kinds[dated]}, but the periods are of {kinds[not dated]}; "
            "pass the same kind of time."
        )


def _count(rule: Any) -> int | None:
    """A number of bins, if that is what the rule is."""
    if isinstance(rule, str) and re.fullmatch("[0-9]+", rule):
        # more digits than the most periods have mean too many, whatever they are
        rule = int(rule[:20])
    if not isinstance(rule, int | np.integer) or isinstance(rule, bool):
        return None
    if rule < 2:
        raise InputError(f"period={rule} is too few; use at least 2 periods.")
    if rule > MAX_PERIODS:
        raise InputError(
            f"period={quoted(rule)} is more than {MAX_PERIODS:,} periods; use fewer, or a unit."
        )
    return int(rule)


def _cut(cutoff: Any, dated: bool) -> float | None:
    """A cutoff as a number, also by the name of a bin; None without one."""
    if cutoff is None:
        return None
    cutoff = getattr(cutoff, "start_time", cutoff)  # of a pandas period
    point = _point(str(cutoff).strip().removesuffix(".."), dated)
    if point is None:
        return None
    return float(point.astype(np.int64) if dated else point)


@dataclass(frozen=True)
class _End:
    """Where labels end when times are put into `periods`, and no cutoff is given."""

    is_within: bool  # whether labels end within a period, so that it cannot be used
    past: ndarray  # mask of the labelled nodes before the cutoff that labels imply

    @classmethod
    def of(cls, number: ndarray, known: ndarray, periods: ndarray) -> _End:
        # The last known label, and the period in which it lies.
        last_label = number[known].max()
        last = periods[known].max()
        inside = periods == last
        is_after = number > last_label
        # Nodes after the last label, but in the same period.
        num_after = int((inside & is_after).sum())
        # The share of labelled nodes before that, by which a gap of this length is chance or not.
        rate = float(known[inside & ~is_after].mean())
        past = known
        # Without later periods, that of the last label is the target.
        if not (periods > last).any():
            past = known & ~inside
        return cls(num_after > 0 and (1 - rate) ** num_after < CHANCE, past)


def _calendar(
    number: ndarray, known: ndarray, cut: float | None
) -> tuple[str | None, float | None]:
    """The calendar unit whose labelled periods are nearest to a dozen, and a border within one.

    Units that have a period begin where labels end come first; they need no border.
    """
    values = number.astype("M8[us]")
    possible: list[tuple[bool, float, str]] = []
    for unit in UNITS:
        periods = Periods(unit)
        every = periods.of(values)
        past = known
        # No cutoff: labels imply one.
        if cut is None:
            end = _End.of(number, known, every)
            is_torn = end.is_within
            if not is_torn:
                past = end.past
        else:
            # The period of the cutoff; it is torn if known labels before the cutoff lie in it.
            border = periods.of(np.array([cut]).astype("M8[us]"))[0]
            is_torn = bool((every[known] >= border).any())
        _, sizes = np.unique(every[past], return_counts=True)
        has_right_count = LEAST_BINS <= len(sizes) <= MOST_LABELLED
        if not has_right_count or len(np.unique(every)) > MOST:
            continue
        # Three quarters of the labelled periods have enough labels.
        if np.quantile(sizes, 0.25) >= ENOUGH:
            # Twice as many periods are as bad as half as many.
            distance = abs(np.log(len(sizes) / BINS))
            possible.append((is_torn, distance, unit))
    if not possible:
        return None, None
    # Of equals, the first is the longest unit.
    is_torn, _, unit = min(possible, key=lambda choice: choice[:2])
    if not is_torn:
        return unit, None
    if cut is None:
        cut = _first_target(number, known)
    return unit, cut


def _first_target(number: ndarray, known: ndarray) -> float:
    last_label = number[known].max()
    return float(number[number > last_label].min())


def _split(number: ndarray, known: ndarray, unit: str, border: float) -> Periods:
    """Calendar periods, one of them cut in two; the part before the border is not left thin."""
    calendar = Periods(unit)
    every = np.unique(calendar.of(number.astype("M8[us]")))
    # The last one is the first moment after all periods.
    moments = [calendar.start(period) for period in [*every, every[-1] + 1]]
    *starts, after = np.array(moments).astype(float).tolist()
    cut = max(start for start in starts if start < border)
    is_before = known & (number >= cut) & (number < border)
    # Too thin for a period of its own: it stays with the one before.
    if np.count_nonzero(is_before) < ENOUGH:
        starts.remove(cut)
    return Periods("bins", starts=tuple(sorted({*starts, border})), end=after - 1)


def _starts(number: ndarray, known: ndarray, count: int | None, cut: float | None) -> ndarray:
    """First values of bins of about equal counts, with a border at `cut` or where labels end."""
    if cut is None:
        # The most bins, down from a dozen, that have enough labels before the last one.
        candidates = range(BINS, 2, -1) if count is None else [count]
        for bins in candidates:
            starts = np.unique(_quantiles(number, bins))
            is_early = number < starts[-1]
            if (known & is_early).sum() >= PER_BIN * bins:
                break
        bin_of = np.searchsorted(starts, number, side="right")
        if not _End.of(number, known, bin_of).is_within:
            return starts
        cut = _first_target(number, known)
    past = number < cut
    if count is None:
        # As many bins as labels suffice for, between 3 and a dozen.
        enough = int((known & past).sum()) // PER_BIN
        count = min(max(enough, 3), BINS)
    if past.all() or not past.any():
        return np.unique(_quantiles(number, count))
    share = float(past.mean())
    # Bins before and after the border in proportion to their nodes, at least one each.
    before = min(max(round(count * share), 1), count - 1)
    early = _quantiles(number[past], before)
    # The first quantile after the border is the border itself.
    late = _quantiles(number[~past], count - before)[1:]
    return np.unique(np.r_[early, cut, late])


def _quantiles(number: ndarray, count: int) -> ndarray:
    """`count` values that have about as many values between them; they are values themselves."""
    position = np.arange(count) * len(number) // count
    return np.sort(number)[position]


def _short(moment: Any) -> str:
    if not isinstance(moment, np.datetime64):
        return f"{moment:g}"
    return str(moment).removesuffix(".000000").removesuffix("T00:00:00")


def _point(value: Any, dated: bool) -> Any:
    """A date (a year is its first day) or number as a person writes it; None if it is neither."""
    text = str(value).strip()
    if dated:
        if text.isdigit() and len(text) == 4:
            text = f"{text}-01-01"
        # The name of a week is its Monday.
        with suppress(ValueError):
            return np.datetime64(datetime.datetime.strptime(f"{text}-1", "%G-W%V-%u"), "us")
        return parse(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
