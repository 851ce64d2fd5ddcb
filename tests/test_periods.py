"""Times are parsed, grouped into periods, named, and cut at a date."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import impact_gnn as ig
from impact_gnn.checks import InputError
from impact_gnn.encoding.moments import from_numbers, moments, unit_of
from impact_gnn.graph.periods import UNITS, Periods, _cut, choose

DATES = np.array(
    ["1969-12-31T23:59:59", "2020-02-29T12:00:00", "2021-01-03T00:00:00", "2021-01-04T00:00:00"],
    "M8[us]",
)
moment = st.datetimes(
    min_value=np.datetime64("1800-01-01", "us").item(),
    max_value=np.datetime64("2200-01-01", "us").item(),
)


@given(st.sampled_from(UNITS), moment, moment)
def test_calendar_periods_hold_their_moments_and_keep_order(unit, a, b):
    periods, values = Periods(unit), np.array(sorted([a, b]), "M8[us]")
    first, second = periods.of(values).tolist()
    assert first <= second
    assert periods.start(first) <= values[0] < periods.start(first + 1)
    assert periods.cutoff(str(periods.start(first))) == first
    assert periods.of(np.array([periods.start(first)]))[0] == first


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        ("year", ["1969", "2020", "2021", "2021"]),
        ("quarter", ["1969-Q4", "2020-Q1", "2021-Q1", "2021-Q1"]),
        ("month", ["1969-12", "2020-02", "2021-01", "2021-01"]),
        ("week", ["1970-W01", "2020-W09", "2020-W53", "2021-W01"]),
        ("day", ["1969-12-31", "2020-02-29", "2021-01-03", "2021-01-04"]),
        ("hour", ["1969-12-31T23", "2020-02-29T12", "2021-01-03T00", "2021-01-04T00"]),
    ],
)
def test_periods_have_names(unit, names):
    periods = Periods(unit)
    assert [periods.name(int(t)) for t in periods.of(DATES)] == names
    assert [periods.cutoff(name) for name in names if unit != "hour"] == periods.of(DATES).tolist()[
        : 4 * (unit != "hour")
    ]


def test_the_first_week_after_1970_is_a_cutoff_too():
    """Its number is 0, which is not the same as no week."""
    assert _cut("1970-W02", True) is not None
    assert Periods("week").cutoff("1970-W02") == 0


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["2021-07-01", None]), ["2021-07-01T00:00:00", "NaT"]),
        (
            pa.array(["2021-07-01 10:00", "2021-07-01T10:00:00.5"]),
            ["2021-07-01T10:00:00", "2021-07-01T10:00:00.5"],
        ),
        (
            pa.array(["2021-07-01T00:30:00+02:00", "2021-07-01T00:30:00Z"]),
            ["2021-06-30T22:30", "2021-07-01T00:30"],
        ),
        (
            pa.array(["2018-01-15 15:48:15 UTC", "2018-01-15 15:48:15.5 UTC", "2018-01-15 15:48"]),
            ["2018-01-15T15:48:15", "2018-01-15T15:48:15.5", "2018-01-15T15:48"],
        ),
        (pa.array(["2021-07", "2022-01"]), ["2021-07-01", "2022-01-01"]),
        (pa.array(["2021-Q3", "2021q1"]), ["2021-07-01", "2021-01-01"]),
        (pa.array([0], pa.timestamp("s", "America/New_York")), ["1970-01-01"]),
        (pa.array([18809], pa.date32()), ["2021-07-01"]),
        (pa.array([1_625_097_600_000_000_000], pa.timestamp("ns")), ["2021-07-01"]),
    ],
)
def test_dates_are_read_as_they_are_written(column, expected):
    assert np.array_equal(moments(column), np.array(expected, "M8[us]"), equal_nan=True)


@pytest.mark.parametrize("text", ["2021", "07/01/2021", "soon", "2021-13-01", "20210701", ""])
def test_what_is_no_date_is_not_taken_for_one(text):
    assert moments(pa.array([text])) is None


@pytest.mark.parametrize(
    ("values", "unit", "date"),
    [
        ([1_625_097_600], "seconds", "2021-07-01"),
        ([1_625_097_600_000], "milliseconds", "2021-07-01"),
        ([1_625_097_600_000_000], "microseconds", "2021-07-01"),
        ([1_625_097_600_000_000_000], "nanoseconds", "2021-07-01"),
        ([20210701], "YYYYMMDD", "2021-07-01"),
        ([202107], "YYYYMM", "2021-07-01"),
        ([2021], None, None),
        ([5], None, None),
        ([20211301], None, None),
        ([-1_625_097_600], None, None),
    ],
)
def test_numbers_that_are_dates(values, unit, date):
    assert unit_of(np.array(values)) == unit
    if unit is not None:
        assert from_numbers(np.array(values), unit)[0] == np.datetime64(date)


def dates(count=2000, days=1460, seed=0):
    rng = np.random.default_rng(seed)
    return np.datetime64("2018-01-01", "us") + rng.integers(0, days, count) * np.timedelta64(1, "D")


def test_auto_takes_a_calendar_unit_with_enough_labels_that_is_not_torn():
    values = dates()
    for cut, unit in (("2021-07-01", "quarter"), ("2021-08-01", "month")):
        known = values < np.datetime64(cut)
        periods, sentence = choose(values, known)
        assert periods == Periods(unit)
        assert f"a period is a {unit}" in sentence
        assert periods.of(values[known]).max() < periods.of(values[~known]).min()
    assert choose(dates(days=20), None)[0] == Periods("day")


def test_auto_bins_what_no_calendar_suits_and_puts_a_border_where_labels_end():
    values = dates(300)
    cut = np.datetime64("2021-08-17")
    periods, sentence = choose(values, values < cut)
    assert periods.unit == "bins"
    assert "periods of about equal size" in sentence
    time = periods.of(values)
    assert time[values < cut].max() < time[values >= cut].min()
    sizes = np.bincount(time)
    assert sizes.max() <= 3 * sizes.min()


def test_two_hundred_thousand_times_never_become_a_table():
    values = np.random.default_rng(0).permutation(200_000)
    periods, sentence = choose(values, values < 150_000)
    assert len(np.unique(periods.of(values))) <= 12
    assert "200,000 distinct times in 12 periods" in sentence
    with pytest.raises(
        InputError, match="time has 200,000 distinct values, more than 10,000 periods"
    ):
        ig.TemporalGraph(time=values, edge_index=np.zeros((2, 0), int))


def test_later_values_go_on_in_bins_of_the_usual_width():
    periods = Periods("bins", False, (0.0, 10.0, 20.0), 29.0)
    assert periods.of(np.array([-5, 0, 9, 10, 29, 30, 39, 60])).tolist() == [0, 0, 0, 1, 2, 3, 4, 6]
    assert periods.name(1) == "10.."
    assert Periods("bins", False, (1546470.0, 1546471.0), 1546480.0).name(1) == "1546471.."


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=300), st.integers(2, 20))
def test_bins_keep_order_and_hold_every_value(values, count):
    values = np.array(values)
    periods, _ = choose(values, None, count)
    time = periods.of(values) - periods.first
    order = np.argsort(values, kind="stable")
    assert (np.diff(time[order]) >= 0).all()
    assert time.min() == 0
    assert time.max() < count
    assert periods.first > np.abs(values).max()


@pytest.mark.parametrize(
    ("rule", "values", "sentence"),
    [
        ("fortnight", dates(), "period='fortnight' is not valid; choose auto, year, quarter"),
        (1, dates(), "period=1 is too few; use at least 2 periods"),
        (
            "month",
            np.array([1, 2]),
            "period='month' needs dates, but the times are numbers such as 1",
        ),
        ("whole", np.array([1.5, 2]), "period='whole' needs whole numbers"),
        (
            Periods("year"),
            np.array([1, 2]),
            "the times are numbers, but the periods are of dates",
        ),
    ],
)
def test_periods_that_cannot_be(rule, values, sentence):
    with pytest.raises(InputError, match=sentence):
        choose(values, None, rule)


def test_whole_numbers_are_periods_or_times_and_never_taken_for_each_other():
    rng = np.random.default_rng(0)
    weeks = np.datetime64("2021-01-04", "us") + rng.integers(0, 84, 2000) * np.timedelta64(1, "D")
    nodes = {"id": np.arange(2000), "time": weeks, "label": rng.integers(0, 2, 2000)}
    g = ig.from_tables(nodes, {"source": [0], "target": [1]}, quiet=True)
    assert g.periods == Periods("week")  # whose numbers look like years
    assert g.masked(g.infer_cutoff()).cutoff == g.infer_cutoff()
    assert g.when("2021-01-04") == g.when("2021-W01")
    values = rng.random(3000) * 10
    nodes = {"id": np.arange(3000), "time": values, "label": rng.integers(0, 2, 3000)}
    g = ig.from_tables(nodes, {"source": [0], "target": [1]}, cutoff=8, quiet=True)
    for cutoff in (8, 8.0, "8"):
        assert np.array_equal(g.targets(cutoff), values >= 8)
    assert g.masked(g.when(8)).cutoff == g.when("8")


def test_a_graph_is_cut_at_a_date_and_says_so():
    months = Periods("month")
    values = np.array(["2021-05-03", "2021-06-10", "2021-07-09"], "M8[us]")
    g = ig.TemporalGraph(
        y=[0, 1, 0], time=months.of(values), edge_index=[[0, 1], [1, 2]], periods=months
    )
    assert g.masked("2021-07-01").y.tolist() == [0, 1, -1]
    assert g.masked("2021-07").cutoff == g.when(np.datetime64("2021-07-01"))
    assert repr(g.masked("2021-07-01")).endswith("times 2021-05..2021-07, cutoff 2021-07)")
    assert g.summary().names == ["2021-05", "2021-06", "2021-07"]
    with pytest.raises(
        InputError,
        match=r"is inside the period 2021-07; use the start of 2021-07 \(2021-07-01\)",
    ):
        g.masked("2021-07-02")
    east = datetime.datetime(2021, 7, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert g.when(east) == g.when("2021-07")  # in UTC
    with pytest.raises(
        InputError, match=r"no node is at or after cutoff=2021-08 \(the last time is 2021-07\)"
    ):
        g.masked("2021-08-01")
    with pytest.raises(
        InputError, match="cutoff='soon' is not a point in time; pass a date such as 2021-07-01"
    ):
        g.masked("soon")


@pytest.mark.parametrize("period", ["auto", "month"])
@pytest.mark.parametrize(
    "cutoff",
    ["Jan 2023", pd.NaT, float("nan"), True, (2023, 1), datetime.timezone.utc, 1672531200],
)
def test_tables_refuse_a_cutoff_as_their_graph_does(period, cutoff):
    values, label = dated_rows()
    table = {"id": np.arange(len(values)), "time": values, "label": label}
    edges = {"source": [0], "target": [1]}
    with pytest.raises(InputError) as by_graph:
        ig.from_tables(table, edges, period=period, quiet=True).masked(cutoff)
    with pytest.raises(InputError) as by_tables:
        ig.from_tables(table, edges, period=period, cutoff=cutoff, quiet=True)
    assert str(by_tables.value) == str(by_graph.value)


@pytest.mark.parametrize(
    "cutoff",
    [
        np.datetime64("2018-01-01", "ns"),
        pd.Series(["2018-01-01"], dtype="M8[ns]").to_numpy()[0],
        "2018-01-01T00:00:00.000000000",
        "2018-W01",
        pd.Period("2018-01", "M"),
        pd.Period("2018-01-01", "W"),
    ],
)
def test_points_in_time_of_numpy_and_pandas_are_cutoffs(cutoff):
    values, label = dated_rows()
    table = {"id": np.arange(len(values)), "time": values, "label": label}
    for period in ("auto", "month", 30):
        g = ig.from_tables(
            table,
            {"source": [0], "target": [1]},
            period=period,
            cutoff=cutoff,
            quiet=True,
        )
        assert np.array_equal(g.masked(cutoff).targets(), values >= np.datetime64("2018-01-01"))


@pytest.mark.parametrize("unit", ["M", "Q", "W"])
def test_periods_of_pandas_are_read_as_their_start(unit):
    values, label = dated_rows()
    time = pd.Series(values).dt.to_period(unit)
    columns = {"id": np.arange(len(values)), "time": time, "label": label}
    edges = {"source": [0], "target": [1]}
    for table in (columns, columns | {"time": list(time)}, pd.DataFrame(columns)):
        g = ig.from_tables(table, edges, period="day", quiet=True)
        assert np.array_equal(g.time, Periods("day").of(time.dt.start_time.to_numpy()))


def dated_rows(years=6, size=1200):
    """Days over some years, and labels of all of them."""
    day = np.sort(np.random.default_rng(0).integers(0, 365 * years, size))
    return np.datetime64("2015-01-01", "us") + day * np.timedelta64(1, "D"), np.ones(size, bool)


@pytest.mark.parametrize("rule", ["auto", 10])
def test_with_a_cutoff_labels_from_there_on_change_no_period(rule):
    values, labelled = dated_rows()
    later = values >= np.datetime64("2019-07-01")
    some = labelled & ~(later & (np.arange(len(values)) % 3 > 0))
    chosen = [choose(values, mask, rule, "2019-07-01")[0] for mask in (labelled, some, ~later)]
    assert chosen[0] == chosen[1] == chosen[2]
    # nothing before the cutoff has a label, so none of those after it matters
    chosen = [choose(values, mask, rule, "2019-07-01")[0] for mask in (later, later & some, None)]
    assert chosen[0] == chosen[1] == chosen[2]


@pytest.mark.parametrize("rule", ["auto", 10])
@pytest.mark.parametrize("dates", [True, False])
def test_without_a_cutoff_labels_of_the_last_period_change_no_period(rule, dates):
    values, labelled = dated_rows()
    if not dates:
        values = (values - values[0]) / np.timedelta64(1, "D") + 0.5
    chosen = choose(values, labelled, rule)[0]
    period = chosen.of(values)
    last = period == period.max()
    rng = np.random.default_rng(1)
    for share in (0.2, 0.5, 0.8, 1.0):
        some = labelled & ~(last & (rng.random(len(values)) < share))
        assert choose(values, some, rule)[0] == chosen


def test_labels_that_end_within_a_period_begin_a_new_one():
    values, labelled = dated_rows()
    border = np.datetime64("2020-06-18")
    chosen = choose(values, labelled & (values < border), "auto")[0]
    first = values[values >= border].min()
    assert chosen.start(int(chosen.of(np.array([first]))[0])) == first
    assert chosen.of(values[values < border]).max() < chosen.of(np.array([first]))[0]


@pytest.mark.parametrize(
    ("years", "cutoff", "units"),
    [
        (1, None, {"month"}),
        (1, "2020-10-01", {"month"}),
        (2, None, {"quarter"}),
        (2, "2021-08-01", {"month"}),
        (3, "2022-07-01", {"month", "quarter"}),
        (75, "2084-01-01", {"year"}),
    ],
)
def test_days_of_events_become_calendar_periods(years, cutoff, units):
    """Not blocks of equal counts, whose borders have no meaning."""
    day = np.random.default_rng(0).integers(0, 365 * years, 3000)
    values = (np.datetime64("2020-01-01") + day).astype("M8[us]")
    periods, _ = choose(values, np.ones(len(values), bool), "auto", cutoff)
    assert periods.unit in units


@pytest.mark.parametrize(
    ("days", "unit", "size"), [(91, "week", 14), (3 * 365, "quarter", 14), (30 * 365, "year", 32)]
)
@pytest.mark.parametrize("has_cutoff", [True, False])
def test_a_cutoff_within_a_calendar_period_splits_only_that_period(days, unit, size, has_cutoff):
    """Exact timestamps over 3 months, 3 years and 30 years, labels of the first four fifths."""
    moments = np.sort(np.random.default_rng(0).random(3000)) * days * 86_400_000_000
    values = np.datetime64("1994-03-07", "us") + moments.astype("m8[us]")
    border = values[2400]
    cutoff = {True: str(border), False: None}[has_cutoff]
    periods, sentence = choose(values, values < border, "auto", cutoff)
    assert "one begins where labels end" in sentence
    time = periods.of(values)
    assert len(np.unique(time)) == size
    starts = [periods.start(period) for period in np.unique(time)]
    assert border in starts
    assert periods.cutoff(border) == time[2400] == time[2399] + 1
    assert periods.name(0) in ("1994-03-07..", "1994-01-01..")
    # all but the border are first moments of calendar periods
    calendar = Periods(unit)
    for start in starts:
        period = int(calendar.of(np.array([start]))[0])
        assert start in (border, calendar.start(period))
    # the last period goes on to its calendar end
    last = calendar.start(int(calendar.of(values[-1:])[0]) + 1) - np.timedelta64(1, "us")
    assert periods.of(np.array([last]))[0] == time[-1]


def test_a_thin_rest_before_the_cutoff_joins_the_period_before():
    values = np.datetime64("2000-01-01", "us") + np.arange(3650) * np.timedelta64(1, "D")
    periods, _ = choose(values, None, "auto", "2008-01-06")
    names = [periods.name(period) for period in np.unique(periods.of(values))]
    assert names[6:10] == ["2006-01-01..", "2007-01-01..", "2008-01-06..", "2009-01-01.."]


def test_times_may_be_numbers_of_numpy():
    """A year is a year whatever its type; it was taken for a period number."""
    years = range(2015, 2022)
    starts = tuple(float(np.datetime64(f"{year}-01-01", "us").astype(np.int64)) for year in years)
    graph = ig.TemporalGraph(
        y=[0] * 7,
        time=np.arange(7),
        edge_index=np.zeros((2, 0), int),
        periods=Periods("bins", True, starts, starts[-1] + 1),
    )
    for year in (2018, np.int64(2018), np.int32(2018), np.float64(2018)):
        assert graph.upto(year).num_nodes == 4
        assert graph.targets(year).sum() == 4
