"""Values of tables stay exact: ids, labels, times and numbers, read at once or in batches."""

from decimal import Decimal
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import impact_gnn as ig
from impact_gnn.checks import InputError
from impact_gnn.data import sources
from impact_gnn.data.files import read
from impact_gnn.data.sources import file
from impact_gnn.encoding.kinds import dates, numbers, texts, vectors

TINY = 64
"""Bytes of a block, so that a small file has many."""


def folder(path, nodes, edges="source,target\n", toml=None):
    path.mkdir(exist_ok=True)
    (path / "nodes.csv").write_text(nodes)
    (path / "edges.csv").write_text(edges)
    if toml is not None:
        (path / "graph.toml").write_text(toml)
    return path


def table(values, name="id", time=None):
    """A node table of one column and times."""
    rows = (f"{value},{2010 + k % 9 if time is None else time}" for k, value in enumerate(values))
    return f"{name},time\n" + "".join(f"{row}\n" for row in rows)


def frame(size=6, **columns):
    return {"id": list(range(size)), "time": [2010 + k for k in range(size)], **columns}


EDGE = {"source": [0, 1], "target": [1, 2]}


# -- labels


@pytest.mark.parametrize("names", [(-1, 1), (-1, 0, 1)])
def test_minus_one_is_a_class_of_a_table_and_a_note_says_so(names, capsys):
    labels = [names[k % len(names)] for k in range(6)]
    g = ig.from_tables(frame(label=labels), EDGE)
    assert g.label_names == names
    assert (g.y >= 0).all()
    assert "-1 is read as a class" in capsys.readouterr().out


def test_a_label_can_be_declared_to_mean_unknown(tmp_path):
    labels = [-1, 0, 1, 0, 1, -1]
    g = ig.from_tables(frame(label=labels), EDGE, unknown_label=-1, quiet=True)
    assert (g.label_names, g.y.tolist()) == ((0, 1), labels)
    words = ["a", "b", "?", "x", "a", "b"]
    g = ig.from_tables(frame(label=words), EDGE, unknown_label=["?", "x"], quiet=True)
    assert (g.label_names, g.y.tolist()) == (("a", "b"), [0, 1, -1, -1, 0, 1])
    toml = '[nodes.node]\nfile = "nodes.csv"\nunknown = [-1]\n[edges.to]\nfile = "edges.csv"\n'
    nodes = "id,time,label\n" + "".join(f"{k},{k},{label}\n" for k, label in enumerate(labels))
    g = ig.load(folder(tmp_path, nodes, "source,target\n0,1\n", toml))
    assert (g.label_names, g.y.tolist()) == ((0, 1), labels)
    with pytest.raises(InputError, match="cannot be an unknown_label"):
        ig.from_tables(frame(label=labels), EDGE, unknown_label=[None])


def test_arrays_have_minus_one_for_unknown():
    g = ig.TemporalGraph(y=[0, 1, -1], time=[0, 1, 2], edge_index=[[0], [1]])
    assert g.num_labels == 2


def test_blank_labels_are_unknown(capsys):
    g = ig.from_tables(frame(label=["a", "", " ", "b", "\t", None]), EDGE)
    assert (g.label_names, g.y.tolist()) == (("a", "b"), [0, -1, -1, 1, -1, -1])
    assert "3 blank labels are unknown" in capsys.readouterr().out


def test_labels_that_differ_in_white_space_are_refused():
    with pytest.raises(InputError, match="column 'label' of nodes has the classes 'a' and ' a'"):
        ig.from_tables(frame(label=["a", "b", " a", "a", "b", "b"]), EDGE, quiet=True)


@pytest.mark.parametrize(
    "labels",
    [
        ["1.1", "1.10", "1.2"],
        ["0x0A", "10", "x"],
        ["1e5", "100000", "2"],
        ["+4", "4", "5"],
        ["-01", "-1", "01"],
        ["1", "01", "2"],
        ["1.0", "1", "2"],
    ],
)
def test_labels_and_ids_of_a_csv_stay_as_written(tmp_path, labels):
    rows = "".join(f"n{k},{2010 + k},{label}\n" for k, label in enumerate(labels))
    g = ig.load(folder(tmp_path, "id,time,label\n" + rows))
    assert [g.label_names[k] for k in g.y] == labels
    g = ig.load(folder(tmp_path, table(labels), f"source,target\n{labels[0]},{labels[1]}\n"))
    assert sorted(g.ids.tolist()) == sorted(labels)
    assert g.ids[g.edge_index].tolist() == [labels[:1], labels[1:2]]


def test_decimals_of_twenty_digits_do_not_merge():
    large = [Decimal(12345678901234567890 + k) for k in range(3)]
    nodes = {"id": pa.array(large), "time": [1, 2, 3], "label": pa.array(large)}
    g = ig.from_tables(nodes, {"source": pa.array(large[:1]), "target": pa.array(large[1:2])})
    assert g.ids.tolist() == [str(one) for one in large]
    assert len(g.label_names) == 3
    assert g.edge_index.tolist() == [[0], [1]]
    small = pa.array([Decimal("5.00"), Decimal("6.00")])
    g = ig.from_tables({"id": small, "time": [1, 2]}, {"source": [5], "target": [6]}, quiet=True)
    assert g.ids.tolist() == [5, 6]


# -- ids and edge ends


def test_leading_zeros_anywhere_in_a_large_file_are_preserved(tmp_path):
    """The file is larger than a block, and zeros begin in the last one."""
    count = 1_600_000
    ids = np.arange(100_000_000, 100_000_000 + count).astype(str).astype(object)
    ids[-1] = "000400005"
    text = "id,time,code\n" + "\n".join(f"{one},2010,{one}" for one in ids)
    assert len(text) > 1 << 25
    nodes = file(folder(tmp_path, text) / "nodes.csv").as_written(["id"]).table
    assert nodes["id"].to_pylist() == nodes["code"].to_pylist() == ids.tolist()


def test_an_edge_to_007_does_not_reach_node_7(tmp_path):
    with pytest.raises(InputError, match="first '007' in row 2"):
        ig.load(folder(tmp_path, table(range(10)), "source,target\n1,2\n007,3\n"))
    nodes = {"id": ["1", "2", "007"], "time": [1, 2, 3]}
    assert ig.from_tables(nodes, {"source": [1], "target": [2]}, quiet=True).edge_index.size == 2
    with pytest.raises(InputError, match="first 7 in row 1"):
        ig.from_tables(nodes, {"source": [7], "target": [2]}, quiet=True)


@pytest.mark.parametrize(("kind", "bits"), [("float16", 11), ("float32", 24), ("float64", 53)])
def test_edge_ends_that_a_float_cannot_tell_apart_are_refused(kind, bits):
    first = (1 << bits) - 2
    nodes = {"id": np.arange(first, first + 4), "time": [1, 2, 3, 4]}
    good = np.array([first, first + 1], kind)
    edges = {"source": good[:1], "target": good[1:]}
    assert ig.from_tables(nodes, edges, quiet=True).edge_index.tolist() == [[0], [1]]
    bad = np.array([first + 2], kind)
    with pytest.raises(InputError, match="too large to be exact ids"):
        ig.from_tables(nodes, {"source": bad, "target": bad}, quiet=True)


@pytest.mark.parametrize(
    "ends", [[True, False], np.array(["2020-01-01", "2021-01-01"], "M8[s]"), [b"0", b"1"]]
)
def test_edge_ends_that_are_no_ids_are_refused(ends):
    with pytest.raises(InputError, match="cannot be an id"):
        ig.from_tables(frame(), {"source": ends, "target": ends}, quiet=True)


def test_the_exact_name_of_a_column_wins():
    labels = {"label": list("aabbab"), "Label": list("xxyyxy"), "LABEL": list("zzzzzw")}
    for order in (labels, dict(reversed(labels.items()))):
        assert ig.from_tables(frame(**order), EDGE, quiet=True).label_names == ("a", "b")


def test_columns_that_are_called_the_same_as_text_are_refused():
    with pytest.raises(InputError, match="equal as text"):
        ig.from_tables(frame() | {1: list(range(6)), "1": list(range(6))}, EDGE)


@pytest.mark.parametrize("index", [range(3), ["x", "y", "z"], [5, 3, 9], [1, 1, 1]])
def test_a_csv_with_the_index_of_a_data_frame(tmp_path, index):
    nodes = pd.DataFrame({"time": [1, 2, 3], "label": list("aba")}, index=list(index))
    named = list(index) if len(set(index)) == 3 else [0, 1, 2]
    edges = pd.DataFrame({"a": named[:2], "b": named[1:]})
    tmp_path.mkdir(exist_ok=True)
    nodes.to_csv(tmp_path / "nodes.csv")
    edges.to_csv(tmp_path / "edges.csv")
    reading = read(tmp_path)
    graph = reading.graph
    assert graph.ids.tolist() == sorted(named)
    assert sorted(graph.ids[graph.edge_index].T.tolist()) == sorted(edges.to_numpy().tolist())
    expected_note = (
        "id from 'Unnamed: 0'" if len(set(index)) == 3 else "rows numbered 0 to 2 as ids"
    )
    assert expected_note in "\n".join(reading.notes)


def test_one_very_long_id_is_refused_before_memory_is_asked_for():
    ids = ["x" * 200_000, *(f"n{k}" for k in range(20_000))]
    edges = {"source": ["n1"], "target": ["n2"]}
    with pytest.raises(InputError, match=r"the id in row 1 has 200,000 characters, more than"):
        ig.from_tables({"id": ids, "time": [1, 2] * 10_000 + [3]}, edges)


# -- times


def test_years_far_away_are_refused_and_never_wrap():
    for year in (300_000, -300_000, 10_000):
        time = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], "M8[s]")
        time[1] = np.datetime64(year - 1970, "Y").astype("M8[s]")
        with pytest.raises(InputError, match=r"years .*1 to 9999"):
            ig.from_tables({"id": [0, 1, 2], "time": time}, EDGE, quiet=True)
    far = pa.array([2**45, 0, 1], pa.timestamp("s"))
    with pytest.raises(InputError, match="not a date"):
        dates("born", far)


@pytest.mark.parametrize("first", [2**62, -(2**62), float(2**60)])
def test_times_that_would_wrap_or_merge_are_refused(first):
    nodes = {"id": [0, 1, 2], "time": [first, first, first]}
    with pytest.raises(InputError, match="too large to be exact"):
        ig.from_tables(nodes, EDGE, quiet=True)


def test_large_whole_numbers_are_exact_or_refused():
    time = [5 * 10**16 + k for k in range(300)]
    nodes = {"id": list(range(300)), "time": time}
    assert ig.from_tables(nodes, EDGE, period="whole", quiet=True).time.tolist() == time
    with pytest.raises(InputError, match="too large to bin exactly"):
        ig.from_tables(nodes, EDGE, quiet=True)


@pytest.mark.parametrize("count", [10**9, 10**100, "9" * 100, "1000000000", "9" * 5000])
def test_more_periods_than_anyone_has_are_refused(count):
    with pytest.raises(InputError, match="is more than 10,000 periods"):
        ig.from_tables(frame(), EDGE, period=count, quiet=True)


def test_thousands_of_periods_of_one_node_are_refused():
    time = np.arange(9000)
    with pytest.raises(InputError, match="9,000 distinct values for 9,000 nodes"):
        ig.TemporalGraph(time=time, edge_index=[[0], [1]])
    with pytest.raises(InputError, match="9,000 distinct values for 9,000 nodes"):
        ig.from_tables({"id": time, "time": time}, EDGE, period="whole", quiet=True)


@pytest.mark.parametrize("edge_times", [3, 200])
def test_seconds_of_nodes_and_edges_are_read_alike(edge_times):
    day = 86_400
    nodes = {"id": [0, 1, 2, 3], "time": [1_600_000_000 + 30 * day * k for k in range(4)]}
    edges = {"source": [k % 4 for k in range(200)], "target": [(k + 1) % 4 for k in range(200)]}
    edges["time"] = [1_600_000_000 + day * (k % edge_times) for k in range(200)]
    g = ig.from_tables(nodes, edges, quiet=True)
    assert len(np.unique(g.time)) > 1
    assert g.edge_time.min() >= g.time.min()
    assert (g.periods is not None) == (edge_times > 50)


# -- features


def test_a_word_among_numbers_warns_and_may_be_read_as_missing(tmp_path):
    heights = ["", 1.5, "oops", 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5]
    nodes = "id,time,height\n" + "".join(f"{k},{k},{v}\n" for k, v in enumerate(heights))
    reading = read(folder(tmp_path, nodes))
    warning = "column 'height' is mostly numbers, but row 3 is 'oops'"
    assert warning in "\n".join(reading.notes)
    assert warning in reading.graph.summary().warnings[0]
    reading.graph.save(tmp_path / "saved")
    assert ig.load(tmp_path / "saved").summary().warnings == reading.graph.summary().warnings
    toml = '[nodes.node]\nfile = "nodes.csv"\ncolumns = {height = "number"}\n'
    reading = read(folder(tmp_path, nodes, toml=toml + '[edges.to]\nfile = "edges.csv"\n'))
    assert "1 values that are not numbers are read as missing" in "\n".join(reading.notes)
    assert not reading.graph.summary().warnings
    got = reading.graph.nodes["node"].columns.table["height"].to_pylist()
    assert got == [None, 1.5, None, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5]


def test_decimal_commas_warn_and_may_be_read_as_points():
    values = ["1,5", "2,25", "3", "-4,5", None, "6,0"]
    g = ig.from_tables(frame(height=values), EDGE, quiet=True)
    assert "row 1 is '1,5'; write 1.5 instead" in g.summary().warnings[0]
    g = ig.from_tables(frame(height=values), EDGE, columns={"height": "number"}, quiet=True)
    column = g.nodes["node"].columns.table["height"]
    assert column.to_pylist() == [1.5, 2.25, 3.0, -4.5, None, 6.0]
    mixed = ["1,500", "2.5", "3", "4", None, "6"]
    g = ig.from_tables(frame(height=mixed), EDGE, columns={"height": "number"}, quiet=True)
    column = g.nodes["node"].columns.table["height"]
    assert column.to_pylist() == [None, 2.5, 3.0, 4.0, None, 6.0]


def test_codes_and_words_do_not_warn():
    for values in (["007", "008", "x", "1", "2", "3"], ["a", "b", "c", "1", "2", "3"]):
        assert not ig.from_tables(frame(code=values), EDGE, quiet=True).summary().warnings


def test_sparse_columns_of_pandas_are_read():
    nodes = pd.DataFrame(frame(count=pd.arrays.SparseArray([0, 0, 3, 0, 0, 1])))
    g = ig.from_tables(nodes, EDGE, quiet=True)
    assert g.nodes["node"].columns.table["count"].to_pylist() == [0, 0, 3, 0, 0, 1]


def test_very_large_numbers_in_lists_are_pulled_in():
    lists = [[1.0, 2.0], [3.0, 1e300], [2.0, -1e300], [4.0, 5.0], [1.0, 1.0], [0.0, 0.0]]
    g = ig.from_tables(frame(embedding=lists), EDGE, columns={"embedding": "vector"}, quiet=True)
    assert np.isfinite(g.x).all()
    assert np.abs(g.x).max() < 1e6


def test_a_file_of_another_kind_is_not_taken_for_the_table(tmp_path):
    toml = '[nodes.node]\nfile = "nodes.xlsx"\n[edges.to]\nfile = "edges.csv"\n'
    with pytest.raises(InputError, match=r"'nodes.xlsx'; the files are"):
        ig.load(folder(tmp_path, table(range(3)), toml=toml))


# -- pieces and the whole

CELLS = {
    "whole": st.integers(-(10**6), 10**6).map(str),
    "wide": st.integers(-(2**63), 2**63 - 1).map(str),
    "float": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "code": st.sampled_from(["007", "7", "0x0A", "1e5", "+4", "-01", " 7", "1.10", "1.1"]),
    "truth": st.sampled_from(["true", "false", "True", "1", "0", "TRUE"]),
    "day": st.dates().map(str),
    "clock": st.sampled_from(["12:30", "00:00:01", "23:59"]),
    "stamp": st.datetimes().map(str),
    "zone": st.sampled_from(["2020-01-01T00:00:00+02:00", "2020-01-01T00:00:00Z", "2020-01-01"]),
    "month": st.sampled_from(["2021-07", "2021-Q3", "2021Q4", "2021-08-01", "2021"]),
    "word": st.sampled_from(
        ["a", "b", "NA", "", " ", "null", "é", 'say "so"', "two\nlines", "x,y"]
    ),
}


def csv_text(columns):
    quoted = ([f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in column] for column in columns)
    rows = zip(*quoted, strict=True)
    header = ",".join(f"c{k}" for k in range(len(columns)))
    return header + "\n" + "".join(",".join(row) + "\n" for row in rows)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_csv_in_blocks_of_any_size_is_the_same_table(tmp_path_factory, data):
    size = data.draw(st.integers(1, 30))
    kinds = [data.draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=2))]
    kinds.append([data.draw(st.sampled_from(sorted(CELLS)))])
    columns = [
        data.draw(st.lists(st.one_of(*(CELLS[k] for k in kind)), min_size=size, max_size=size))
        for kind in kinds
    ]
    path = tmp_path_factory.mktemp("t") / "nodes.csv"
    path.write_text(csv_text(columns), encoding="utf-8", newline="")
    for exact in ([], ["c0"]):
        whole = file(path).as_written(exact).table
        for block in (TINY, 1 << 10):
            with patch.object(sources, "BLOCK", block):
                pieces = file(path).as_written(exact)
                assert pieces.table.equals(whole)
                assert pa.Table.from_batches(pieces.batches()).equals(whole)


ARROW = [
    pa.array([1.0, 1.5, 2.0, -0.0, 1e17, 1e300, None, 3.0]),
    pa.array([1, 2, 2**62, None]),
    pa.array(["2020-01-01", "2021-07", "2021-Q3", "2020-01-01T05:00:00Z", None]),
    pa.array([0, 86_400_000_000, 5, 86_400_500_000, None], pa.timestamp("us")),
    pa.array([0, 86_400, 5, None], pa.timestamp("s", "UTC")),
    pa.array([0, 10, None], pa.date32()),
    pa.array([True, False, None]),
    pa.array([Decimal("1.50"), Decimal("2.00"), None]),
    pa.array([[1.0, 2.0], [1e300, -1e300]]),
]


@pytest.mark.parametrize("column", ARROW, ids=lambda column: str(column.type))
def test_pieces_of_a_column_are_read_as_the_whole_is(column):
    def same(of):
        try:
            whole = list(of("c", column))
        except InputError:
            return
        pieces = [value for k in range(len(column)) for value in of("c", column.slice(k, 1))]
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(whole, pieces, strict=True))

    for of in (numbers, dates, vectors):
        same(of)
    if not pa.types.is_list(column.type):
        pieces = [texts("c", column.slice(k, 1))[0].as_py() for k in range(len(column))]
        assert texts("c", column).to_pylist() == pieces


def test_a_spilled_graph_is_the_same_graph(tmp_path):
    ids = [*(f"{k}" for k in range(1, 60)), "007"]
    nodes = "id,time,label,when,size\n" + "".join(
        f"{one},{2010 + k % 5},{'1.10' if k % 2 else '1.1'},12:{10 + k % 50},{k / 3}\n"
        for k, one in enumerate(ids)
    )
    edges = "source,target\n" + "".join(f"{a},{b}\n" for a, b in pairwise(ids))
    whole = read(folder(tmp_path / "t", nodes, edges))
    with patch.object(sources, "BLOCK", 256):
        pieces = read(tmp_path / "t", spill=tmp_path / "spill")
    assert pieces.notes == whole.notes
    for name in ("ids", "y", "time", "edge_index", "label_names", "x"):
        np.testing.assert_array_equal(getattr(pieces.graph, name), getattr(whole.graph, name))
