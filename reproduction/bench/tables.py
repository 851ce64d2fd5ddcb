"""Claim: `from_tables` costs little more than arrays built by hand from a polars frame.

That holds for text ids, too.

Every contestant is a fresh process that draws the same frames first. By hand is what a careful
person would write with polars and numpy; both end in a `TemporalGraph` whose features have been
asked for once. Memory is what comes on top of the frames at the peak.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

import impact_gnn as ig
from reproduction.bench import Goal, Report, in_process, peak_memory


def tables(
    nodes: int = 10_000_000,
    edges: int = 100_000_000,
    width: int = 64,
    ids: str = "row numbers,numbers,text",
    rounds: int = 1,
    json: Path | None = None,
) -> Report:
    """from_tables against arrays by hand, for ids that are row numbers, other numbers, and text."""
    kinds = ids.split(",")
    rows: list[dict[str, Any]] = [
        {
            "ids": kind,
            "way": way,
            **in_process(contest, way, kind, nodes=nodes, edges=edges, width=width),
        }
        for _ in range(rounds)
        for kind in kinds
        for way in ("by hand", "from_tables")
    ]

    def best(kind: str, way: str, what: str) -> float:
        return min(row[what] for row in rows if (row["ids"], row["way"]) == (kind, way))

    goals = [
        Goal(
            f"{what} over by hand, {kind}",
            -1,
            most,
            best(kind, "from_tables", what) / best(kind, "by hand", what),
        )
        for kind in kinds
        for what, most in (("seconds", 1.5), ("memory", 1.3))
    ]
    return Report(
        f"{nodes:,} nodes x {width} float32, {edges:,} edges, from polars", rows, goals
    ).finish(json)


def contest(way: str, kind: str, nodes: int, edges: int, width: int) -> dict[str, float]:
    """One contestant; everything is loaded on small frames before the clock starts."""
    build = {"by hand": by_hand, "from_tables": ours}[way]
    build(*frames(kind, 1000, 5000, width))
    people, links = frames(kind, nodes, edges, width)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak_memory()
    start = time.perf_counter()
    graph = build(people, links)
    assert graph.x is not None
    assert graph.x.shape == (nodes, width)
    return {"seconds": time.perf_counter() - start, "memory": peak_memory() - before}


def frames(kind: str, nodes: int, edges: int, width: int) -> tuple[Any, Any]:
    """Nodes with a day, a label and features; edges by id."""
    import polars as pl

    rng = np.random.default_rng(0)
    number = np.arange(nodes) if kind == "row numbers" else rng.permutation(nodes) * 3 + 7
    columns: dict[str, Any] = {
        "id": number,
        "time": np.datetime64("2015-01-01", "D") + rng.integers(0, 2500, nodes),
    }
    columns["label"] = rng.integers(0, 20, nodes)
    columns |= {f"f{k}": rng.random(nodes, dtype=np.float32) for k in range(width)}
    ends = rng.integers(0, nodes, (2, edges))
    people = pl.DataFrame(columns)
    links = pl.DataFrame({"source": number[ends[0]], "target": number[ends[1]]})
    if kind == "text":
        people = people.with_columns(pl.format("n{}", "id").alias("id"))
        links = links.select(pl.format("n{}", side).alias(side) for side in links.columns)
    return people, links


def ours(people: Any, links: Any) -> ig.TemporalGraph:
    """The two lines of the README."""
    return ig.from_tables(people, links, period="year", quiet=True)


def by_hand(people: Any, links: Any) -> ig.TemporalGraph:
    """The arrays as a person would make them."""
    import polars as pl

    features = [name for name in people.columns if name not in ("id", "time", "label")]
    place = people.select("id").with_row_index("place")
    if people["id"].dtype == pl.Int64 and (people["id"] == place["place"]).all():
        edge_index = np.stack([links["source"].to_numpy(), links["target"].to_numpy()])
    else:
        ends = (
            links.select(side).join(
                place, left_on=side, right_on="id", how="left", maintain_order="left"
            )
            for side in links.columns
        )
        edge_index = np.stack([end["place"].to_numpy() for end in ends])
    ids = people["id"].to_numpy()
    return ig.TemporalGraph(
        x=people.select(features).to_numpy(order="c"),
        y=people["label"].to_numpy(),
        edge_index=edge_index,
        time=people["time"].dt.year().to_numpy(),
        ids=ids.astype(str) if ids.dtype == object else ids,
    )
