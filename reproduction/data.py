"""The real graphs at hand, `<root>/<name>/<name>.npz`, and where their late nodes begin."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import impact_gnn as ig

CUTOFFS: Mapping[str, int] = {"aan": 2011, "acl_hetero": 2022, "ogbn_arxiv": 2019, "scotus": 1990, "twitch": 20}


def path_of(name: str, root: Path) -> Path:
    return root / name / f"{name}.npz"


def load(name: str, root: Path, *, joined: bool = False) -> ig.TemporalGraph:
    """A graph; where a spectral embedding lies beside it, that is its features, alone or `joined` to its own."""
    graph = ig.load(path_of(name, root))
    embedded = root / name / f"{name}_svd64.npz"
    if not embedded.is_file():
        return graph if graph.x is None else graph.with_features(np.asarray(graph.x, np.float32))
    x = arrays(embedded)["x_svd"].astype(np.float32)
    if joined and graph.x is not None:
        x = np.hstack([np.asarray(graph.x, np.float32), x])
    return graph.with_features(x)


def aan_with_authors(name: str, root: Path) -> ig.TemporalGraph:
    """AAN's papers with citations and authors; authors have neither features nor time."""
    part = arrays(path_of(name, root))
    return ig.TemporalGraph.hetero(
        nodes={
            "paper": {"x": part["x"].astype(np.float32), "y": part["y"], "time": part["time"]},
            "author": {"num_nodes": int(part["num_authors"])},
        },
        edges={("paper", "cites", "paper"): part["edge_index"], ("author", "writes", "paper"): part["author_writes"]},
        target="paper",
    )


def arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise ig.InputError(f"{path} cannot be read ({error}); fetch it again.") from None


def mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ig.InputError(f"{path} cannot be read ({error}); give a .npy file with a row per node.") from None
