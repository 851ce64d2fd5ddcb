"""Chooses the engine of a job: memory where it fits, files otherwise, or a refusal."""

from __future__ import annotations

import atexit
import tempfile
from dataclasses import dataclass
from pathlib import Path

from impact_gnn import _files, checks
from impact_gnn._native import free_memory
from impact_gnn._progress import duration
from impact_gnn.checks import InputError
from impact_gnn.engines.dask import Dask, connected
from impact_gnn.engines.disk import Disk
from impact_gnn.engines.engine import Engine
from impact_gnn.engines.memory import Memory
from impact_gnn.graph import TemporalGraph

KINDS = ("auto", "memory", "disk", "dask")

EDGES_PER_SECOND = 4e7
"""Edges times 64 columns that one core propagates per second; files take twice as long."""

LIBRARIES = 400_000_000  # bytes of Python, torch and the others
SHARE = 0.7  # of the free memory that a job may plan with


@dataclass(frozen=True)
class EngineChoice:
    """The engine, and one sentence with the estimates behind the choice."""

    engine: Engine
    sentence: str


def choose(
    graph: TemporalGraph,
    kind: str = "auto",
    *,
    memory: str | int | None = None,
    scheduler: str | None = None,
    scratch: str | Path | None = None,
    hops: int = 2,
) -> EngineChoice:
    """Choose the engine for a job on this graph.

    "auto" takes memory if the job of that many hops fits into a share of the free memory, or into
    `memory`; otherwise disk. `memory` caps the engines on files (default: a share of the free
    memory), `scheduler` is HOST:PORT for "dask", and `scratch` the directory for files (default:
    a temporary one).

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> choose(tsbm(num_nodes=200, num_times=4, num_labels=2, seed=0)).engine
        Memory(threads=None)
    """
    checks.choice("engine", kind, KINDS)
    if scheduler is not None and kind != "dask":
        raise InputError(
            f"a scheduler has no effect with engine {kind!r}; omit it or use engine 'dask'."
        )
    in_memory, in_files, seconds = job_needs(graph, hops)
    free = free_memory()
    # The user's limit, or a share of what is free: training needs memory, too.
    cap = int(SHARE * free) if memory is None else _files.byte_size(memory)
    size = _files.readable_size
    if kind == "memory" or (kind == "auto" and in_memory <= cap):
        need = f"about {size(in_memory)} of memory"
        if in_memory > free:
            raise InputError(
                f"engine 'memory' needs {need}, but {size(free)} are free; "
                f"use --engine disk, or fewer features."
            )
        sentence = f"engine memory: {need}, {size(free)} free, {duration(seconds)} per pass"
        return EngineChoice(Memory(), sentence)
    if scratch is None:
        scratch = tempfile.mkdtemp(prefix="impact-gnn-")
        atexit.register(_files.remove, Path(scratch))
    place = Path(scratch)
    place.mkdir(parents=True, exist_ok=True)
    _files.require_space(place, in_files)
    needs = (
        f"in memory {size(in_memory)}; in files {size(in_files)}, {duration(2 * seconds)} per pass"
    )
    if kind == "dask":
        if scheduler is None:
            raise InputError(
                "engine 'dask' needs --scheduler HOST:PORT of a running Dask scheduler."
            )
        address = scheduler if "://" in scheduler else f"tcp://{scheduler}"
        dask = Dask(connected(address, patience=20), place, "2GB" if memory is None else memory)
        return EngineChoice(dask, f"engine dask at {address}: {needs}")
    # The whole process with the disk engine, from measurements on 1 M nodes: the interpreter with
    # its libraries, what the cap governs, and the probabilities of all nodes for smoothing.
    peak = LIBRARIES + int(1.3 * cap) + graph.num_nodes * (100 + 32 * graph.num_labels)
    sentence = (
        f"engine disk, cap {size(cap)}: {needs}; the whole process peaks at about {size(peak)}"
    )
    return EngineChoice(Disk(place, cap), sentence)


def job_needs(graph: TemporalGraph, hops: int) -> tuple[int, int, float]:
    """Estimate what one candidate's inputs take: bytes in memory, bytes in files, and seconds.

    From measurements on 2 M nodes and 40 M edges: memory holds hops as computed, as scaled and as
    trained on, and the edges twice.
    """
    rows = sum(part.num_nodes for part in graph.nodes.values())
    matrices = [part.x for part in graph.nodes.values() if part.x is not None]
    width = max((x.shape[1] for x in matrices), default=0)
    edges = 2 * sum(part.num_edges for part in graph.relations.values())
    hop = 4 * rows * width
    labels = 8 * graph.num_nodes * graph.num_labels * min(hops, 2)
    in_memory = hop * (3 * hops + 4) + labels + 40 * edges + 40 * rows
    in_files = hop * (hops + 1) + labels + 20 * edges + 20 * rows
    return in_memory, in_files, hops * edges * max(width, 16) / 64 / EDGES_PER_SECOND
