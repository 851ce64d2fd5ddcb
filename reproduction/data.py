"""The real graphs at hand, `<root>/<name>/<name>.npz`, and where their late nodes begin."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import impact_gnn as ig
from impact_gnn.backtesting.folds import windows
from reproduction.event_tables import EVENT_TABLES

CUTOFFS: Mapping[str, int] = {
    "aan": 2011,
    "acl_hetero": 2022,
    "ogbn_arxiv": 2019,
    "scotus": 1990,
    "twitch": 20,
}
FURTHER_CUTOFFS: Mapping[str, int] = {
    "music_influence": 1990,
    "metamath": 2016,
    "elife_hetero": 2022,
    "nvd_hetero": 2016,
    "arxiv_cs_hetero": 2017,
}
"""Graphs of the leaderboard that the studies do not use."""


def path_of(name: str, root: Path) -> Path:
    return root / name / f"{name}.npz"


def load(name: str, root: Path, *, joined: bool = False) -> ig.TemporalGraph:
    """A graph; a spectral embedding next to it replaces its features, or is `joined` to them."""
    graph = ig.load(path_of(name, root))
    embedded = root / name / f"{name}_svd64.npz"
    if not embedded.is_file():
        return graph if graph.x is None else graph.with_features(np.asarray(graph.x, np.float32))
    x = arrays(embedded)["x_svd"].astype(np.float32)
    if joined and graph.x is not None:
        x = np.hstack([np.asarray(graph.x, np.float32), x])
    return graph.with_features(x)


def available(root: Path) -> list[str]:
    """Names of all graphs under `root`: the known ones, then other archives and saved graphs."""
    known = [name for name in (*CUTOFFS, *FURTHER_CUTOFFS) if path_of(name, root).is_file()]
    places = [
        *root.glob("*.npz"),
        *root.glob("*/*.npz"),
        *(file.parent for file in root.glob("*/manifest.json")),
    ]
    tables = [
        name for name, table in EVENT_TABLES.items() if (root / "tables" / table.folder).is_dir()
    ]
    others = {str(place.relative_to(root)) for place in places if place.parent.name not in known}
    return [*known, *tables, *sorted(others)]


def at_hand(names: Sequence[str], root: Path | None) -> list[str]:
    """Those of `names` that can be run.

    "tsbm", which is drawn, and graphs that lie under `root`.
    """
    there = [name for name in names if name == "tsbm" or (root and path_of(name, root).is_file())]
    if not there:
        raise ig.InputError(
            f"none of {', '.join(names)} exists; pass the folder of the real graphs with --root."
        )
    return there


def with_cutoff(name: str, root: Path) -> tuple[ig.TemporalGraph, int]:
    """A graph that `available` names; a graph that is not known tells its cutoff itself.

    "aan@1" is the graph at the end of its last window of labels before the cutoff, and the first
    period of that window; "aan@2" is that of the window before. Choices are compared on them.
    """
    name, _, number = name.partition("@")
    if number:
        return _past_window(*with_cutoff(name, root), number)
    if name in EVENT_TABLES:
        table = EVENT_TABLES[name]
        graph = table.read(root / "tables" / table.folder)
        return graph, graph.when(table.cutoff)
    graph = load(name, root) if path_of(name, root).is_file() else ig.load(root / name)
    cutoff = {**CUTOFFS, **FURTHER_CUTOFFS}.get(name)
    return graph, graph.infer_cutoff() if cutoff is None else cutoff


def _past_window(graph: ig.TemporalGraph, cutoff: int, number: str) -> tuple[ig.TemporalGraph, int]:
    """The graph at the end of a past window, the newest being 1, and where that window begins."""
    if not number.isdecimal() or int(number) < 1:
        raise ig.InputError(f"@{number} names no past window; @1 is the newest.")
    past = windows(graph.masked(cutoff), int(number))
    if len(past) < int(number):
        raise ig.InputError(f"@{number} lies too far back: there are {len(past)} past windows.")
    window = past[0]
    return graph.upto(window.last), window.first


def aan_with_authors(name: str, root: Path) -> ig.TemporalGraph:
    """AAN's papers with citations and authors; authors have neither features nor time."""
    part = arrays(path_of(name, root))
    return ig.TemporalGraph.hetero(
        nodes={
            "paper": {"x": part["x"].astype(np.float32), "y": part["y"], "time": part["time"]},
            "author": {"num_nodes": int(part["num_authors"])},
        },
        edges={
            ("paper", "cites", "paper"): part["edge_index"],
            ("author", "writes", "paper"): part["author_writes"],
        },
        target="paper",
    )


def arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise ig.InputError(f"{path} cannot be read ({error}); download it again.") from None


def mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ig.InputError(
            f"{path} cannot be read ({error}); pass a .npy file with a row per node."
        ) from None
