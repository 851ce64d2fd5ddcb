"""The engine for graphs whose features, or edges, do not fit into memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files, checks
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation import job
from impact_gnn.propagation.disk_operator import DiskOperator, open_saved, time_part
from impact_gnn.propagation.edge_files import EdgeArrays, edges_of
from impact_gnn.propagation.executors import Local
from impact_gnn.propagation.external import sort_edges
from impact_gnn.propagation.job import Job
from impact_gnn.propagation.manifest import held
from impact_gnn.propagation.operator import Operator
from impact_gnn.propagation.plan import Needs
from impact_gnn.propagation.progress import Watcher
from impact_gnn.propagation.room import nothing_lost, refuse_unless_room
from impact_gnn.propagation.stored_csr import StoredCSR

STORAGE = ("float16", "float32", "float64")
"""In what hops can be kept."""


@dataclass(frozen=True)
class Disk:
    """Hops as `.npy` files in `directory`, computed slice by slice of columns within `memory`.

    The process takes at most `memory` and 300 MB for itself. Run again after a crash, a full disk or `kill -9`, it
    goes on where it was and makes the same files; run again when complete, it opens them. A directory belongs to
    one X and one list of operations: with others it is refused (use `within` for a directory of their own).

    Args:
        directory: Where files go: `hop-1.npy`, `hop-2.npy`, ..., `manifest.json`, sorted edges.
        memory: Such as "2GB".
        storage: Keep slices and hops in "float16", "float32" or "float64"; by default in the type of X.
        threads: By default as many as there are cores.
        progress: True for a bar, or a function that is told what is being done and which share is done.

    Example:
        >>> import tempfile
        >>> from impact_gnn.data.tsbm import tsbm
        >>> from impact_gnn.propagation.memory import Memory
        >>> graph = tsbm(num_nodes=200, num_times=4, num_labels=2, seed=0)
        >>> place = tempfile.TemporaryDirectory()
        >>> disk = Disk(place.name, memory="2kB")
        >>> step = disk.operator(graph, weighting="pmp")
        >>> print(disk.needs([step, step], graph.x).slices)
        3
        >>> first, second = disk.hops([step, step], graph.x)
        >>> same = Memory().hops([step.load(), step.load()], graph.x)
        >>> bool((second == same[1]).all())
        True
        >>> place.cleanup()
    """

    directory: str | Path
    memory: str | int = "2GB"
    storage: str | None = None
    threads: int | None = None
    progress: Watcher = False

    def __post_init__(self) -> None:
        _files.byte_size(self.memory)
        if self.storage is not None:
            checks.choice("storage", self.storage, STORAGE)
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise InputError(f"threads={self.threads!r} must be a whole number of at least 1, or None for all cores.")

    def hops(self, operators: Sequence[Operator | DiskOperator], x: Any) -> list[np.ndarray]:
        """Hop k is `operators[k]` applied to hop k−1, the first one to `x`; memory maps of the files.

        Args:
            operators: From `operator`, or in memory.
            x: [N, f], in memory or mapped; or the path of a `.npy` file.
        """
        return self._job(operators, x).run(Local(self.threads), self.progress) if operators else []

    def needs(self, operators: Sequence[Operator | DiskOperator], x: Any) -> Needs:
        """What `hops` would take, without beginning."""
        return self._job(operators, x).needs()

    def operator(
        self,
        graph: TemporalGraph | str | Path,
        relation: Triple | None = None,
        *,
        weighting: str | np.ndarray = "plain",
        norm: str = "mean",
        self_loop: bool = False,
        undirected: bool = False,
    ) -> DiskOperator:
        """The operation of one relation, its edges sorted into files of this directory.

        Args:
            graph: The graph, or the directory of a saved one, which is then not loaded.
            relation: Which relation; may be left out where there is only one.
            weighting: Name of a method, or a table over the graph's times.
            norm: "mean", "sym" or "sum".
            self_loop: Adds a loop of weight 1 to every node.
            undirected: Count every edge in both directions.
        """
        graph = graph if isinstance(graph, TemporalGraph) else open_saved(graph)
        relation = graph._name(relation)
        part = graph.relations[relation]
        sizes = graph.nodes[relation[0]].num_nodes, graph.nodes[relation[2]].num_nodes
        name = "-".join(relation) + ("-undirected" if undirected else "")
        csr = self._sorted(EdgeArrays(part.edge_index, part.weight), sizes, undirected, name)
        return DiskOperator(csr, *time_part(graph, relation, weighting), norm=norm, self_loop=self_loop)

    def edges(
        self,
        files: Any,
        num_sources: int,
        num_targets: int | None = None,
        *,
        weight: Any = None,
        undirected: bool = False,
        name: str = "edges",
    ) -> StoredCSR:
        """Edges from files, sorted by target within `memory` into files of this directory.

        Args:
            files: An array [2, E]; a `.npy` file; or one or more `.csv` or `.parquet` files with whole-number columns
                source, target and, if there are weights, weight.
            num_sources: Number of nodes at which edges may begin.
            num_targets: Number of nodes at which edges may end; by default the same nodes.
            weight: For arrays and `.npy` files: one weight per edge, an array or a file.
            undirected: Count every edge in both directions (a loop once).
            name: To tell several relations in one directory apart.
        """
        sizes = num_sources, num_sources if num_targets is None else num_targets
        return self._sorted(edges_of(files, weight), sizes, undirected, name)

    def within(self, name: str) -> Disk:
        """The same engine in a directory of its own, `<directory>-<name>`: for another X or other operations."""
        return Disk(Path(f"{self.directory}-{name}"), self.memory, self.storage, self.threads, self.progress)

    def _sorted(self, edges: Any, sizes: tuple[int, int], undirected: bool, name: str) -> StoredCSR:
        directory = Path(self.directory)
        place = directory / "edges" / re.sub("[^A-Za-z0-9_-]", "_", name)[:80]
        with held(directory), nothing_lost(directory):
            return sort_edges(
                edges,
                *sizes,
                place,
                memory=_files.byte_size(self.memory),
                undirected=undirected,
                threads=self.threads,
                room=lambda size: refuse_unless_room(directory, size),
            )

    def _job(self, operators: Sequence[Operator | DiskOperator], x: Any) -> Job:
        x = job.features(x)
        dtype = x.dtype if self.storage is None else np.dtype(self.storage)
        threads = job.default_threads(self.threads)
        return Job(Path(self.directory), operators, x, _files.byte_size(self.memory), dtype, threads)
