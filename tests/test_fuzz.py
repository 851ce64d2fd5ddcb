"""Damaged and odd tables give a graph or one sentence."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import impact_gnn as ig
from fuzzing import seeds
from impact_gnn.checks import InputError

ROWS, EACH = 30, 100

NODES = "id,time,label,a,b,c,d\n" + "".join(
    f"n{i},20{10 + i % 8}-0{1 + i % 9}-1{i % 10},{['x', 'y', ''][i % 3]},{i / 7},{i % 4},w{i % 3} "
    f"of it,{i % 2 == 0}\n"
    for i in range(ROWS)
)
EDGES = "source,target,weight,time\n" + "".join(
    f"n{i},n{i * 7 % ROWS},{1 + i % 3},20{10 + i % 8}-11-1{i % 10}\n" for i in range(ROWS)
)
TOML = """target = "paper"
period = "year"
[nodes.paper]
file = "nodes.csv"
id = "id"
time = "time"
label = "label"
[nodes.paper.columns]
a = "number"
c = "text"
[edges.cites]
file = "edges.csv"
source = "source"
target = "target"
weight = "weight"
dangling = "drop"
"""
ODD = [
    "",
    "NaN",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-1",
    "0",
    "1e300",
    "9" * 30,
    "2021-02-30",
    "1800-01-01",
    "9999-12-31",
    "NULL",
    "true",
    '"',
    '""',
    "'",
    ",",
    ";",
    "\n",
    "\r\n",
    "\t",
    "|",
    "é",
    "日本",
    "\x00",
    "\ufeff",
    "[1, 2]",
    "{}",
    "a" * 500,
    "2021-01-01T00:00:00+25:00",
    "12:30",
    "0x10",
    "1_000",
    "1,5",
    "id",
    "time",
    "label",
    "source",
    "n1",
    "n999",
]


def mutated(text, rng):
    """The text with a few cells, lines or characters changed."""
    for _ in range(int(rng.integers(1, 4))):
        lines = text.split("\n")
        row = int(rng.integers(0, len(lines)))
        kind = rng.integers(0, 9)
        if kind == 0:
            text = "\n".join(lines[:row] + lines[row + 1 :])
        elif kind == 1:
            text = "\n".join([*lines[:row], lines[row], *lines[row:]])
        elif kind == 2:
            at = int(rng.integers(0, len(text) + 1))
            text = text[:at] + str(rng.choice(ODD)) + text[at + int(rng.integers(0, 3)) :]
        elif kind == 3:
            text = text[: int(rng.integers(0, len(text) + 1))]
        elif kind == 4:  # a whole column becomes odd
            column = int(rng.integers(0, 7))
            odd = [str(value) for value in rng.choice(ODD, 2)]
            cells = [line.split(",") for line in lines]
            for k, line in enumerate(cells[1:]):
                if column < len(line):
                    line[column] = odd[k % 2]
            text = "\n".join(",".join(line) for line in cells)
        else:
            cells = lines[row].split(",")
            cells[int(rng.integers(0, len(cells)))] = str(rng.choice(ODD))
            text = "\n".join([*lines[:row], ",".join(cells), *lines[row + 1 :]])
    return text


def outcome(folder):
    """A graph with its features encoded, or a sentence.

    Anything else is a failure of the validation.
    """
    try:
        g = ig.load(folder)
        view = g.masked(g.infer_cutoff())
        for part in view.nodes.values():
            assert part.x is None or np.isfinite(part.x).all()
        return "graph"
    except InputError as error:
        return "sentence" if str(error) and "\n" not in str(error) else "not a sentence"


def spread(outcomes):
    """Both ends are met, so that neither everything nor nothing is let in."""
    assert {"graph", "sentence"} == set(outcomes)


PAST = json.loads(Path(__file__).with_name("corpus.json").read_text())
"""Tables that once crashed, hung or were read wrongly, and what becomes of them."""


@pytest.mark.parametrize("case", PAST, ids=lambda case: case["what"])
def test_inputs_that_once_failed(tmp_path, case):
    for name in ("nodes", "edges"):
        (tmp_path / f"{name}.csv").write_text(case[name])
    assert outcome(tmp_path) == case["outcome"]


@pytest.mark.parametrize("first", range(0, 10 * EACH, EACH))
def test_mutated_csv(tmp_path, first):
    outcomes = []
    for seed in seeds(EACH, first):
        rng = np.random.default_rng(seed)
        nodes, edges = (mutated(NODES, rng), EDGES) if seed % 2 else (NODES, mutated(EDGES, rng))
        (tmp_path / "nodes.csv").write_bytes(nodes.encode())
        (tmp_path / "edges.csv").write_bytes(
            edges.encode("latin-1", "replace") if seed % 10 == 0 else edges.encode()
        )
        outcomes.append(outcome(tmp_path))
    spread(outcomes)


@pytest.mark.parametrize("first", range(0, 5 * EACH, EACH))
def test_mutated_toml(tmp_path, first):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    outcomes = []
    words = [
        "node",
        "edges.csv",
        "text",
        "category",
        "vector",
        "number",
        "drop",
        "month",
        "auto",
        "3",
        "c",
        "b",
    ]
    for seed in seeds(EACH, first):
        rng = np.random.default_rng(seed)
        text = TOML
        if seed % 3:
            lines = text.split("\n")
            row = int(rng.integers(0, len(lines)))
            value = str(rng.choice([*words, *ODD]))
            lines[row] = lines[row].split("=")[0] + f' = "{value}"' if seed % 3 == 1 else value
            text = "\n".join(lines)
        else:
            text = mutated(text, rng)
        (tmp_path / "graph.toml").write_text(text)
        outcomes.append(outcome(tmp_path))
    spread(outcomes)


def random_column(rng, size):
    """A column of some Arrow type with gaps."""
    kinds = [
        lambda: rng.normal(size=size),
        lambda: rng.normal(size=size).astype(np.float16),
        lambda: rng.integers(0, 9, size),
        lambda: rng.integers(0, 200, size).astype(np.uint8),
        lambda: rng.random(size) < 0.5,
        lambda: rng.choice(["a", "b"], size),
        lambda: rng.integers(-(10**12), 10**12, size).astype("M8[ms]"),
        lambda: rng.integers(0, 9**9, size).astype("m8[s]"),
        lambda: pa.array(rng.choice(["a", "b"], size)).dictionary_encode(),
        lambda: [b"x"] * size,
        lambda: [None] * size,
        lambda: [[1.0] * int(n) for n in rng.integers(0, 3, size)],
        lambda: [{"a": 1}] * size,
        lambda: pa.array([[1.0, 2.0]] * size, pa.list_(pa.float32(), 2)),
        lambda: rng.normal(size=size) * 10.0 ** rng.integers(-300, 300),
        lambda: pa.array(rng.integers(0, 99, size)).cast(pa.decimal128(30, 2)),
        lambda: pa.array([3] * size, pa.time32("s")),
    ]
    column = kinds[rng.integers(0, len(kinds))]()
    column = column if isinstance(column, pa.Array) else pa.array(column)
    # taking from nowhere gives nothing
    gaps = np.where(rng.random(size) < 0.2, None, np.arange(size))
    return column.take(pa.array(gaps.tolist(), pa.int64())) if rng.random() < 0.3 else column


@pytest.mark.parametrize("first", range(0, 5 * EACH, EACH))
def test_odd_and_damaged_parquet(tmp_path, first):
    outcomes = []
    for seed in seeds(EACH, first):
        rng = np.random.default_rng(seed)
        nodes = {
            "id": pa.array([f"n{i}" for i in range(ROWS)]),
            "time": pa.array(rng.integers(2010, 2016, ROWS)),
        }
        nodes["label"] = pa.array(
            rng.choice(["x", "y"], ROWS), mask=np.asarray(nodes["time"]) > 2014
        )
        nodes |= {f"f{k}": random_column(rng, ROWS) for k in range(3)}
        edges = {
            "source": rng.choice(nodes["id"].to_pylist(), 40),
            "target": rng.choice(nodes["id"].to_pylist(), 40),
        }
        if seed % 3 == 0:
            nodes[str(rng.choice(["id", "time", "label"]))] = random_column(rng, ROWS)
        if seed % 7 == 0:
            edges[str(rng.choice(["source", "weight", "time"]))] = random_column(rng, 40)
        for name, columns in (("nodes", nodes), ("edges", edges)):
            buffer = io.BytesIO()
            pa.parquet.write_table(pa.table(columns), buffer)
            data = bytearray(buffer.getvalue())
            if seed % 5 == 0:
                for at in rng.integers(0, len(data), 3):
                    data[at] = int(rng.integers(0, 256))
                data = data[: len(data) - int(rng.integers(0, 2) * rng.integers(0, 50))]
            (tmp_path / f"{name}.parquet").write_bytes(data)
        outcomes.append(outcome(tmp_path))
    spread(outcomes)
