"""Values of graphs from tables equal an independent reading with Python's csv module."""

import csv
import datetime
import re
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import impact_gnn as ig
from fuzzing import seeds
from impact_gnn.checks import InputError
from impact_gnn.data import sources
from impact_gnn.data.files import read
from impact_gnn.graph.parts import class_name

EACH = 80
EMPTY = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL")
"""Cells of a CSV that are missing."""

WORDS = [
    "a",
    "b",
    " a",
    "a ",
    "é",
    "日本",
    "x,y",
    'say "so"',
    "two\nlines",
    "a\rb",
    "x;y",
    "'q'",
    "-",
]
CODES = [
    "7",
    "07",
    "007",
    "+7",
    "-7",
    "-07",
    "7.0",
    "7.00",
    "7e0",
    "0x7",
    " 7",
    "1.1",
    "1.10",
    "-0",
    "0",
]
NUMBERS = ["1", "-2", "3.5", "+4", "1e3", "-2.5e-3", " 6", "7 ", ".5", "8.", "1e300", "0", "-0.0"]
TIMES = ["2015", "2016", "2017", "2020"]
DATES = ["2015-03-01", "2016-02-29", "2017-12-31 23:59:59", "2020-01-01T00:00:00", "2018-05-05"]
TOML = """period = "{period}"
[nodes.node]
file = "nodes{ending}"
id = "id"
time = "time"
label = "label"
unknown = {unknown}
columns = {{size = "number"}}
[edges.to]
file = "edges{ending}"
source = "from"
target = "to"
dangling = "{dangling}"
"""


# -- written tables


def ids_of(rng, size):
    """Different ids in one of the ways that people have them."""
    kinds = [
        lambda: rng.choice(10**3, size, replace=False).astype(str),
        lambda: (rng.choice(10**3, size, replace=False) - 500).astype(str),
        lambda: [2**63 - 1000 + int(k) for k in rng.choice(2000, size, replace=False)],
        lambda: (rng.choice(10**3, size, replace=False) + 2**62).astype(str),
        lambda: [f"{k:04d}" for k in rng.choice(10**3, size, replace=False)],
        lambda: [f"{k}.0" for k in range(size)],
        lambda: [f"n{k}" for k in range(size)],
        lambda: [f"{1234567890123456789012 + k}" for k in range(size)],
        lambda: rng.permutation([*WORDS, *CODES, *map(str, range(100, 100 + size))])[:size],
        lambda: rng.permutation(CODES)[:size],
    ]
    ids = [str(one) for one in kinds[rng.integers(len(kinds))]()]
    if rng.random() < 0.2 and len(ids) > 1:  # something else at the very end
        ids[-1] = str(rng.choice(["007", "x", "+5", "1e5", "", ids[0]]))
    return ids


def cells(rng, size, pool, odd=()):
    out = [str(one) for one in rng.choice(pool, size)]
    for place in np.flatnonzero(rng.random(size) < 0.1):
        if odd:
            out[place] = str(rng.choice(odd))
    return out


def drawn(rng):
    """Two tables of text, by column, and the options they are read with."""
    ids = ids_of(rng, int(rng.integers(3, 26)))
    size = len(ids)
    pools = [
        ["0", "1"],
        ["-1", "1"],
        ["-1", "0", "1"],
        CODES,
        WORDS,
        ["1.0", "2.0"],
        ["0.5", "2.5"],
    ]
    pools += [["1.1", "1.10", "1.2"], ["true", "false"], ["9" * 20, "9" * 19 + "8"]]
    dated = rng.random() < 0.4
    nodes = {
        "id": ids,
        "time": cells(
            rng, size, DATES if dated else TIMES, ["", "x"] if rng.random() < 0.1 else ()
        ),
        "label": cells(rng, size, pools[rng.integers(len(pools))], ["", " ", "NA", "\t"]),
        "size": cells(rng, size, NUMBERS, [["", "nan"], ["", "oops", "007"]][rng.integers(2)]),
        "comma": cells(rng, size, ["1,5", "2,0", "-3,25"]),
    }
    count = int(rng.integers(1, 40))
    outside = ["7", "007", "+7", "nobody"] if rng.random() < 0.3 else ()
    edges = {"from": cells(rng, count, ids, outside), "to": cells(rng, count, ids)}
    options = {
        "period": "day" if dated else "whole",
        "unknown": [[], [-1], ["a", 7]][rng.integers(3)],
        "dangling": str(rng.choice(["refuse", "drop"])),
    }
    return nodes, edges, options


# -- what must come of it


def number(cell, *, comma):
    text = cell.strip().replace(",", ".") if comma else cell.strip()
    is_number = re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text)
    return float(text) if is_number and cell not in EMPTY else None


def expected(nodes, edges, options):
    """Ids, labels, times, edges and numbers as text and floats.

    None where the tables must be refused.
    """
    ids, times = nodes["id"], nodes["time"]
    if any(one in EMPTY for one in [*ids, *times, *edges["from"], *edges["to"]]):
        return None
    if len(set(ids)) < len(ids) or "x" in times:
        return None
    days = []
    for one in times:
        if options["period"] == "whole":
            days.append(int(one))
        else:
            moment = datetime.datetime.fromisoformat(one)
            days.append((moment.date() - datetime.date(1970, 1, 1)).days)
    unknown = [str(one) for one in options["unknown"]]
    labels = [None if one in EMPTY or not one.strip() else one for one in nodes["label"]]
    known = {one for one in labels if one is not None}
    # 1.0 and 7 are the same class where all are floats
    if known and all(re.fullmatch(r"-?\d+\.\d+", one) and repr(float(one)) == one for one in known):
        labels = [one if one is None else class_name(float(one)) for one in labels]
    labels = [None if one is not None and class_name(one) in unknown else one for one in labels]
    left = {one for one in labels if one is not None}
    if len({class_name(one) for one in left}) < len(left):  # "a" and " a"
        return None
    pairs = []
    for a, b in zip(edges["from"], edges["to"], strict=True):
        if a in ids and b in ids:
            pairs.append((ids.index(a), ids.index(b)))
        elif options["dangling"] == "refuse":
            return None
    numbers = {}
    for name in ("size", "comma"):
        with_comma = any(re.fullmatch(r"[-+]?\d+,\d+", one.strip()) for one in nodes[name])
        with_point = any("." in one and number(one, comma=False) is not None for one in nodes[name])
        numbers[name] = [number(one, comma=with_comma and not with_point) for one in nodes[name]]
    return ids, days, labels, pairs, numbers


def is_whole(column):
    """Whether every cell is written as a whole number of 64 bits is."""
    return all(
        re.fullmatch(r"0|-?[1-9]\d*", one) and -(2**63) <= int(one) < 2**63
        for one in column
        if one not in EMPTY
    )


# -- the ways in


def csv_folder(folder, nodes, edges, options):
    for name, columns in (("nodes", nodes), ("edges", edges)):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    ending = ".csv"
    (folder / "graph.toml").write_text(TOML.format(**options, ending=ending))
    return folder


def written(folder):
    """The tables once more, as Python reads them."""
    tables = []
    for name in ("nodes.csv", "edges.csv"):
        with (folder / name).open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines)
            tables.append({one: [row[k] for row in rows] for k, one in enumerate(header)})
    return tables


def whole_csv(folder, nodes, edges, options):
    return ig.load(csv_folder(folder, nodes, edges, options))


def csv_in_blocks(folder, nodes, edges, options):
    path = csv_folder(folder, nodes, edges, options)
    # Arrow wants a row to fit into a block
    block = int(2 ** (8 + len(nodes["id"]) % 5))
    with patch.object(sources, "BLOCK", block):
        return read(path, spill=folder / "spill").graph


def columns_of(table, *, typed):
    """Columns with None where a CSV has a missing value; whole numbers as such where `typed`."""
    out = {}
    for name, column in table.items():
        convert = int if typed and name != "size" and is_whole(column) else str
        out[name] = [None if one in EMPTY else convert(one) for one in column]
    return out


def parquet(folder, nodes, edges, options):
    typed = len(nodes["id"]) % 2 == 0
    for name, table in (("nodes", nodes), ("edges", edges)):
        columns = columns_of(table, typed=typed)
        pa.parquet.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=5)
    (folder / "graph.toml").write_text(TOML.format(**options, ending=".parquet"))
    spill = folder / "spill" if len(edges["to"]) % 2 else None
    return read(folder, spill=spill).graph


def framed(nodes, edges, options, frame, *, typed):
    return ig.from_tables(
        frame(columns_of(nodes, typed=typed)),
        frame(columns_of(edges, typed=typed)),
        id="id",
        time="time",
        label="label",
        edge_source="from",
        edge_target="to",
        columns={"size": "number", "comma": "number"},
        unknown_label=options["unknown"],
        period=options["period"],
        dangling=options["dangling"],
        quiet=True,
    )


def pandas_frames(_, nodes, edges, options):
    def frame(columns):
        kinds = {name: "Int64" for name, values in columns.items() if isinstance(values[0], int)}
        return pd.DataFrame(columns).astype(kinds)

    return framed(nodes, edges, options, frame, typed=len(nodes["id"]) % 2 == 0)


def polars_frames(_, nodes, edges, options):
    return framed(nodes, edges, options, pl.DataFrame, typed=len(nodes["id"]) % 2 == 0)


WAYS = (whole_csv, csv_in_blocks, parquet, pandas_frames, polars_frames)


def differences(graph, wanted, *, is_csv):
    """What of a graph is not as it should be, by name; its nodes may be in another order."""
    ids, times, labels, pairs, numbers = wanted
    names = [] if graph.label_names is None else [class_name(one) for one in graph.label_names]
    graph_ids = [str(one) for one in graph.ids.tolist()]
    if sorted(graph_ids) != sorted(ids):
        return [f"ids: {graph_ids} is not {ids}"]
    row = [ids.index(one) for one in graph_ids]  # of the table, for every node
    ends = ([row[source], row[target]] for source, target in graph.edge_index.T.tolist())
    checks = {
        "time": (graph.time.tolist(), [times[k] for k in row]),
        "label": (
            [names[k] if k >= 0 else None for k in graph.y],
            [None if labels[k] is None else class_name(labels[k]) for k in row],
        ),
        "edges": (sorted(map(tuple, ends)), sorted(pairs)),
    }
    if is_csv:
        checks["kind of ids"] = (graph.ids.dtype.kind == "i", is_whole(ids))
    table = graph.nodes["node"].columns.table
    for name, values in numbers.items():
        kind = table[name].type
        if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            column = table[name].to_pylist()
            checks[name] = (
                [one if one is None or one == one else None for one in column],
                [values[k] for k in row],
            )
        elif name == "size":  # which was declared a number
            checks[name] = (str(kind), "numbers")
    return [
        f"{name}: {got} is not {right}" for name, (got, right) in checks.items() if got != right
    ]


def outcome(way, folder, seed):
    """ "read" or "refused", as it should be; otherwise a description of the error."""
    nodes, edges, options = drawn(np.random.default_rng(seed))
    is_csv = way in (whole_csv, csv_in_blocks)
    folder.mkdir()
    if is_csv:  # the file's content, not the intended one
        nodes, edges = written(csv_folder(folder, nodes, edges, options))
    wanted = expected(nodes, edges, options)
    try:
        graph = way(folder, nodes, edges, options)
    except InputError as error:
        return "refused" if wanted is None else f"seed {seed} was refused: {error}"
    if wanted is None:
        return f"seed {seed} was not refused"
    wrong = differences(graph, wanted, is_csv=is_csv)
    return f"seed {seed}: {'; '.join(wrong)}" if wrong else "read"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_values_are_those_of_an_independent_reading(tmp_path, way):
    assert {outcome(way, tmp_path / str(seed), seed) for seed in seeds(EACH)} == {"read", "refused"}
