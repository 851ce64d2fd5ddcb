"""The engine for graphs whose features, or edges, do not fit into memory.

Everything lies in `.npy` files under one directory, each in a folder named by a digest of what it
was made from:

    edges/<digest>/      a relation grouped by target (`edges.sort_edges`)
    operators/<digest>/  an operation: its table, the periods of its nodes, the scales of its rows
    hops/<digest>/       hops, one file per hop and slice of columns
    graphs/<digest>/     a graph as it was, or with edges in both directions
    arrays/, children/   scratch arrays, and engines with a place of their own

A slice of columns goes through all hops without looking at the others. It must fit into memory;
edges and results stream through in blocks of rows. A file has its name only when it is whole, so
whatever was killed goes on where it stopped, and other inputs can never meet the wrong files.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files, _native, checks
from impact_gnn._progress import Counter, Progress, watched
from impact_gnn.checks import InputError, listing
from impact_gnn.engines.base import (
    FEW,
    Engine,
    Features,
    SlicedHop,
    checked_start,
    columns_of,
    selected_hop,
)
from impact_gnn.engines.edges import (
    EdgeList,
    StoredCSR,
    checked_list,
    edges_from_tables,
    sort_edges,
)
from impact_gnn.engines.operator import Operator, row_blocks
from impact_gnn.graph import Relation, TemporalGraph, Triple, saved
from impact_gnn.graph.csr import CSR, earliest

STORAGE = ("float16", "float32", "float64")
OURS = ("edges", "operators", "hops", "graphs", "arrays", "children", _files.LOCK)

VECTOR = 16
"""Slices are a multiple of so many columns where memory allows: the kernel's registers, a cache line of float32."""

ROWS_EDGES = 1 << 23  # edges into single rows that are taken together


class FileEngine(Engine):
    """What `Disk` and `Dask` share: everything but who does the tasks."""

    memory: str | int
    storage: str | None
    progress: bool | Progress
    parent: FileEngine | None = None  # in whose directory this engine has its own

    def __post_init__(self) -> None:
        super().__post_init__()
        _files.byte_size(self.memory)
        if self.storage is not None:
            checks.choice("storage", self.storage, STORAGE)

    # -- the verbs
    # -----------------------------------------------------------------------------------------

    def csr(self, graph: TemporalGraph, relation: Triple) -> CSR:
        stored = graph.cached_csr(relation)
        # whoever sorted it may have been cleared
        if isinstance(stored, StoredCSR) and stored.directory.exists():
            return stored
        part = graph.relations[relation]
        sizes = graph.nodes[relation[0]].num_nodes, graph.nodes[relation[2]].num_nodes
        with self._working():
            csr = self._sorted(EdgeList(part.edge_index, part.weight, *sizes))
        graph.cache_csr(relation, csr)
        return csr

    def operator(self, *arguments: Any, **options: Any) -> Operator:
        made = super().operator(*arguments, **options)
        if not made.balanced:
            return made
        with self._working():  # a weight per edge of its own is kept in a file
            return open_operator(self._saved(made))

    def edges(
        self, files: Any, num_sources: int, num_targets: int | None = None, *, weight: Any = None
    ) -> StoredCSR:
        """Edges from an array [2, E], a `.npy` file, or CSV and Parquet tables, grouped by target in files.

        Tables need whole-number columns source and target and may have a column weight; arrays take
        `weight`.
        """
        num_targets = num_sources if num_targets is None else num_targets
        if isinstance(files, (str, Path)) and Path(files).suffix != ".npy":
            files = [files]
        with self._working():
            if isinstance(files, (list, tuple)):
                files, weight = edges_from_tables(files, _files.fresh(self.place / "arrays"))
            return self._sorted(checked_list(files, weight, num_sources, num_targets))

    def hops(
        self,
        operators: Sequence[Operator],
        x: Features,
        *,
        rows: np.ndarray | None = None,
        dtype: Any = None,
    ) -> list[Any]:
        x = checked_start(operators, x)
        if not operators:
            return []
        if rows is not None and len(rows) >= FEW * operators[-1].csr.num_targets:
            *before, last = self.hops(operators, x, dtype=dtype)
            return [*before, selected_hop(last, np.asarray(rows))]
        with self._working():
            job = self._job(operators, x, rows, np.dtype(dtype or self.storage or x.dtype))
            if missing := job.missing():
                _files.require_space(self.place, job.bytes_missing())
                counter = Counter(watched(self.progress), "propagating", len(missing))
                self.share(run_slice, [(job, number) for number in missing], counter)
            return [job.hop(k) for k in range(1, len(operators) + 1)]

    def graph(
        self, graph: TemporalGraph, *, upto: int | None = None, undirected: bool = False
    ) -> TemporalGraph:
        with self._working():
            if upto is not None:
                graph = self._upto(graph, upto)
            return self._undirected(graph) if undirected else graph

    def empty(self, shape: tuple[int, int], dtype: Any) -> np.ndarray:
        with self._working():
            _files.require_space(self.place, int(np.prod(shape)) * np.dtype(dtype).itemsize)
            return _files.create_array(
                _files.fresh(self.place / "arrays") / "values.npy", dtype, shape
            )

    def stored(self, array: np.ndarray) -> Any:
        array.flush()  # type: ignore[attr-defined]
        return SlicedHop((array,), _files.digest(array))

    def clear(self) -> None:
        """Removes what engines wrote; a directory without our lock is somebody else's."""
        if (self.place / _files.LOCK).is_file():
            for name in OURS:  # the lock last
                _files.remove(self.place / name)

    def fits(self, size: int) -> bool:
        return size <= _files.byte_size(self.memory) // 2

    def child(self, name: str) -> Any:
        place = self.place / "children" / _files.safe_name(name)
        engine = replace(self, directory=place)  # type: ignore[type-var]
        object.__setattr__(engine, "parent", self)
        return engine

    # -- inside
    # --------------------------------------------------------------------------------------------

    def _refuse_foreign(self) -> None:
        """Refuses a directory with entries that no engine wrote; one without our lock must be empty."""
        path = self.place
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file; choose a directory.")
        entries = list(path.iterdir()) if path.exists() else []
        known = OURS if (path / _files.LOCK).is_file() else ()
        foreign = [one.name for one in entries if one.name not in known or one.is_symlink()]
        if foreign:
            raise InputError(
                f"{path} holds other files ({listing(sorted(foreign), 3)}); choose a new or empty directory."
            )
        if self.parent is not None:
            self.parent._refuse_foreign()
            self.parent.place.mkdir(parents=True, exist_ok=True)
            (self.parent.place / _files.LOCK).touch()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Locks the directory; a foreign one is refused, what a killed run left half-written is removed."""
        path = self.place
        self._refuse_foreign()
        with _files.explain_disk_full(path), _files.locked(path):
            for name in ("edges", "operators", "hops", "graphs"):
                _files.sweep(path / name)
            yield

    @abstractmethod
    def share(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        counter: Counter | None = None,
    ) -> list[Any]:
        """Calls the function for every tuple of arguments and returns the results in order."""

    @property
    @abstractmethod
    def place(self) -> Path:
        """The directory."""

    @property
    @abstractmethod
    def task_memory(self) -> int:
        """Bytes that one task may take."""

    @property
    @abstractmethod
    def least_slices(self) -> int:
        """Into so many slices columns are cut at least, so that everybody has work."""

    def _sorted(self, edges: EdgeList) -> StoredCSR:
        goal = self.place / "edges" / edges.key()
        return sort_edges(edges, goal, memory=self.task_memory, share=self.share)

    def _job(
        self, operators: Sequence[Operator], x: Any, rows: np.ndarray | None, dtype: np.dtype
    ) -> Job:
        saved = {id(each): self._saved(each) for each in operators}
        paths = tuple(saved[id(each)] for each in operators)
        nodes = (x.shape[0], *(each.csr.num_targets for each in operators))
        x_key = x.key if not isinstance(x, np.ndarray) else _files.digest(x)
        key = _files.digest(x_key, [path.name for path in paths], rows, dtype.str)
        fixed = max(each.csr.num_sources * (9 if each.norm == "sym" else 1) for each in operators)
        columns = slice_borders(
            x.shape[1], max(nodes[:-1]), dtype, self.task_memory - fixed, self.least_slices
        )
        directory = self.place / "hops" / key
        directory.mkdir(parents=True, exist_ok=True)
        borders = directory / "columns.json"
        if not borders.exists():
            _files.write_json(borders, list(columns), sealed=True)
        begun = tuple(_files.read_json(borders, sealed=True))
        job = Job(directory, key, paths, x, nodes, rows, begun, dtype, self.threads)
        if not job.missing() or max(np.diff(job.columns)) <= max(np.diff(columns)):
            return job
        _files.remove(directory)  # begun with more memory, in slices too wide by now
        directory.mkdir(parents=True)
        _files.write_json(borders, list(columns), sealed=True)
        return replace(job, columns=columns)

    def _saved(self, operator: Operator) -> Path:
        """The folder of an operation, with its edges, periods and scales in files."""
        csr = operator.csr
        if not isinstance(csr, StoredCSR):
            csr = self._stored(csr)
        arrays = {
            "table": operator.table,
            "source": operator.source_period,
            "target": operator.target_period,
        }
        said = [operator.norm, operator.self_loop, *(["balanced"] if operator.balanced else [])]
        key = _files.digest(str(csr.directory), *said, *arrays.values())
        goal = self.place / "operators" / key
        if not (goal / "operator.json").exists():
            with _files.atomic_directory(goal, own_files=lambda path: None) as temporary:
                for name, values in arrays.items():
                    _files.save_array(temporary / f"{name}.npy", values, sealed=True)
                if operator.balanced:
                    dtype = np.float32 if csr.weight is None else csr.weight.dtype
                    with _files.atomic_array(
                        temporary / "weight.npy", dtype, (csr.num_edges,)
                    ) as out:
                        operator.balance(out)
                if operator.norm == "sym":  # which is asked for the scales of all nodes at once
                    _files.save_array(temporary / "scale.npy", operator.row_scale, sealed=True)
                _files.write_json(
                    temporary / "operator.json",
                    {
                        "edges": str(csr.directory),
                        "norm": operator.norm,
                        "self_loop": operator.self_loop,
                        "balanced": operator.balanced,
                    },
                    sealed=True,
                )
        return goal

    def _stored(self, csr: CSR) -> StoredCSR:
        """A CSR that was made in memory, as files."""
        goal = (
            self.place
            / "edges"
            / _files.digest(csr.indptr, csr.indices, csr.weight, csr.num_sources)
        )
        if not (goal / "csr.json").exists():
            with _files.atomic_directory(goal, own_files=lambda path: None) as temporary:
                for name in ("indptr", "indices", "weight"):
                    if getattr(csr, name) is not None:
                        _files.save_array(
                            temporary / f"{name}.npy", getattr(csr, name), sealed=True
                        )
                meta = {"num_sources": csr.num_sources, "weighted": csr.weight is not None}
                _files.write_json(temporary / "csr.json", meta, sealed=True)
        return StoredCSR.open(goal)

    def _undirected(self, graph: TemporalGraph) -> TemporalGraph:
        """`graph.undirected()`, each relation of a type with itself sorted and merged in files."""
        relations: dict[Triple, Relation] = {}
        kept = {}
        for triple, part in graph.both_ways().items():
            if triple[0] != triple[2]:
                relations[triple] = part
                continue
            size = graph.nodes[triple[0]].num_nodes
            csr = self._sorted(EdgeList(part.edge_index, part.weight, size, size, both=True))
            path = csr.directory / "edge_index.npy"
            if not path.exists():
                _write_edge_index(csr, path)
            time = None if part.time is None else self._earliest(csr, part.edge_index, part.time)
            relations[triple], kept[triple] = (
                Relation(_files.open_array(path, sealed=True), csr.weight, time),
                csr,
            )
        out = graph.with_parts(dict(graph.nodes), relations)
        for triple, csr in kept.items():
            out.cache_csr(triple, csr)
        return out

    def _earliest(self, csr: StoredCSR, edge_index: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Times of merged edges in a file beside them; the folder is named by the edges, so the file by the times."""
        path = csr.directory / f"time-{_files.digest(time)}.npy"
        if not path.exists():
            with _files.atomic_array(path, np.int64, (csr.num_edges,)) as out:
                # As many rows at a time as fit, each a time and a source per edge: every run reads
                # all edges given.
                for rows in pairwise(
                    map(int, _native.spans(csr.indptr, max(1, self.task_memory // 16)))
                ):
                    out[csr.indptr[rows[0]] : csr.indptr[rows[1]]] = earliest(
                        csr, edge_index, time, rows
                    )
                    _native.release(out, csr.indices)
        return _files.open_array(path, sealed=True)

    def _upto(self, graph: TemporalGraph, t: int) -> TemporalGraph:
        """`graph.upto(t)`, features and edges filtered block by block into files."""
        kept = graph.positions_upto(t)
        arrays = [
            a
            for part in graph.nodes.values()
            for a in (part.features, part.time)
            if isinstance(a, np.ndarray)
        ]
        edges = [
            a
            for part in graph.relations.values()
            for a in (part.edge_index, part.weight, part.time)
        ]
        goal = self.place / "graphs" / _files.digest(t, *arrays, *edges)
        nodes, relations = {}, {}
        for kind, part in graph.nodes.items():
            keep = kept[kind]
            if keep is None:
                nodes[kind] = part
                continue
            x = part.features
            # raw columns are a view, encoded when they are asked for
            if not isinstance(x, np.ndarray):
                nodes[kind] = part.take(keep)
                continue
            path = goal / f"{_files.safe_name(kind)}-x.npy"
            if not path.exists():
                with _files.atomic_array(path, x.dtype, (len(keep), x.shape[1])) as out:
                    for rows in _native.block_slices(out):
                        out[rows] = x[keep[rows]]
                        _native.release(out, x)
            nodes[kind] = replace(
                replace(part, features=None).take(keep),
                features=_files.open_array(path, sealed=True),
            )
        numbers = graph.numbers_upto(t, kept)
        for number, (triple, relation) in enumerate(graph.relations.items()):
            ends = [numbers[kind] for kind in (triple[0], triple[2])]
            relations[triple] = _filtered(relation, t, ends, goal / str(number))
        return graph.with_parts(nodes, relations)


@dataclass(frozen=True, eq=False)
class Disk(FileEngine):
    """Hops as files in a directory, within a cap on memory. A run that was cut off goes on.

    Args:
        directory: Where files go; new, empty, or used by this engine before.
        memory: What a slice of columns, and sorting, may take: "2GB", "500MB" or bytes. The
            interpreter comes on top.
        storage: In which type hops are kept; by default that of the features.
        threads: By default as many as there are cores.
        progress: True for a bar on the terminal, or a function as in `_progress`.

    Examples:
        >>> import tempfile
        >>> from impact_gnn import propagate, tsbm
        >>> g = tsbm(num_nodes=200, num_times=4, num_labels=2, seed=0)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     hops = propagate(g, weighting="pmp", hops=2, engine=Disk(place))
        ...     hops[1].rows(np.array([3, 5])).shape
        (2, 5)
    """

    directory: str | Path
    memory: str | int = "2GB"
    storage: str | None = None
    threads: int | None = None
    progress: bool | Progress = False

    @property
    def place(self) -> Path:
        return Path(self.directory).absolute()

    @property
    def task_memory(self) -> int:
        return _files.byte_size(self.memory)

    @property
    def least_slices(self) -> int:
        return 1

    def share(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        counter: Counter | None = None,
    ) -> list[Any]:
        """One task after the other: each uses all threads and the whole memory."""
        results = []
        for task in tasks:
            results.append(function(*task))
            if counter is not None:
                counter.advance()
        return results


@dataclass(frozen=True, eq=False)
class Job:
    """Hops to be made: hop k is the operation in `operators[k − 1]` on hop k − 1, slice by slice; hop 0 is `x`.

    `columns` are the borders of the slices, `nodes[k]` the number of nodes at hop k. Travels to
    workers as it is.
    """

    directory: Path
    key: str
    operators: tuple[Path, ...]
    x: Any
    nodes: tuple[int, ...]
    rows: np.ndarray | None
    columns: tuple[int, ...]
    dtype: np.dtype
    threads: int | None

    def file(self, hop: int, number: int) -> Path:
        return self.directory / f"{hop}-{number:05d}.npy"

    def shape(self, hop: int, number: int) -> tuple[int, int]:
        last = self.rows is not None and hop == len(self.operators)
        rows = len(self.rows) if last and self.rows is not None else self.nodes[hop]
        return rows, self.columns[number + 1] - self.columns[number]

    def missing(self) -> list[int]:
        """Slices of which some hop is not there."""
        hops = range(1, len(self.nodes))
        return [
            k
            for k in range(len(self.columns) - 1)
            if not all(self.file(hop, k).exists() for hop in hops)
        ]

    def hop(self, hop: int) -> SlicedHop:
        slices = tuple(
            _files.open_array(self.file(hop, k), sealed=True) for k in range(len(self.columns) - 1)
        )
        return SlicedHop(slices, f"{self.key}-{hop}")

    def bytes_missing(self) -> int:
        places = [
            (hop, k) for hop in range(1, len(self.nodes)) for k in range(len(self.columns) - 1)
        ]
        sizes = [np.prod(self.shape(*place)) for place in places if not self.file(*place).exists()]
        return int(sum(sizes)) * self.dtype.itemsize


def run_slice(job: Job, number: int) -> None:
    """Takes one slice of columns through all hops; hops that are there already are not made again."""
    values: np.ndarray | None = None
    for hop, path in enumerate(job.operators, start=1):
        goal = job.file(hop, number)
        if goal.exists():
            values = None
            continue
        if values is None and hop > 1:
            values = _files.open_array(job.file(hop - 1, number), sealed=True)
            values = columns_of(values, 0, values.shape[1], job.dtype)
        elif values is None:
            values = columns_of(job.x, job.columns[number], job.columns[number + 1], job.dtype)
        operator = open_operator(path)
        with _files.atomic_array(goal, job.dtype, job.shape(hop, number)) as out:
            if job.rows is not None and hop == len(job.operators):
                _apply_rows(operator, values, job.rows, out, job.threads)
            else:
                _apply(operator, values, out, job.threads)
        values = None  # before the next one is read
        del operator


def _apply(operator: Operator, x: np.ndarray, out: np.ndarray, threads: int | None) -> None:
    """M·X into a file, a block of rows at a time, whose edges are read and given back."""
    csr = operator.edges
    for rows in row_blocks(csr):
        operator.apply(x, out, threads, rows)
        _native.release(csr.indices, csr.weight, out)


def _apply_rows(
    operator: Operator, x: np.ndarray, rows: np.ndarray, out: np.ndarray, threads: int | None
) -> None:
    csr = operator.edges
    cumulative = np.concatenate([[0], np.cumsum(csr.indptr[rows + 1] - csr.indptr[rows])])
    borders = _native.spans(cumulative, ROWS_EDGES)
    for first, last in pairwise(borders):
        out[first:last] = operator.apply_rows(x, rows[first:last], threads)
        _native.release(csr.indptr, csr.indices, csr.weight, out)


def open_operator(folder: Path) -> Operator:
    """The operation that `Disk` keeps in a folder; its arrays are mapped."""
    meta = _files.read_json(folder / "operator.json", sealed=True)
    names = [
        "table",
        "source",
        "target",
        *["scale"] * (meta["norm"] == "sym"),
        *["weight"] * meta["balanced"],
    ]
    kept = {name: _files.open_array(folder / f"{name}.npy", sealed=True) for name in names}
    csr = StoredCSR.open(Path(meta["edges"]))
    operator = Operator(
        csr,
        np.array(kept["table"]),
        kept["source"],
        kept["target"],
        meta["norm"],
        meta["self_loop"],
        meta["balanced"],
    )
    if "weight" in kept:  # fills the cached properties
        vars(operator)["edges"] = replace(csr, weight=kept["weight"])
    if "scale" in kept:
        vars(operator)["row_scale"] = kept["scale"]
    return operator


def slice_borders(
    num_columns: int, num_rows: int, dtype: np.dtype, memory: int, least: int = 1
) -> tuple[int, ...]:
    """Borders of the widest slices of which one, with `num_rows` rows, fits into `memory`; at least `least` of them.

    Examples:
        >>> slice_borders(100, 1000, np.dtype(np.float32), 200_000)
        (0, 48, 96, 100)
    """
    column = max(1, num_rows * dtype.itemsize)
    width = memory // column
    if width < 1:
        raise InputError(
            f"the memory given is too small: {num_rows:,} nodes need at least {_files.readable_size(column)} for one "
            f"column beside what edges take; give more."
        )
    width = min(width, max(1, -(-num_columns // least)))
    for unit in (VECTOR, 4):
        if width >= unit:
            width = width // unit * unit
            break
    return (*range(0, num_columns, width), num_columns)


def _filtered(relation: Relation, t: int, numbers: list[np.ndarray | None], goal: Path) -> Relation:
    """`relation.upto(t, numbers)`, block by block into files whose names begin as `goal`."""
    given = relation.edge_index
    kinds = {
        name: values
        for name in saved.EDGE_ARRAYS
        if (values := getattr(relation, name)) is not None
    }
    files = {name: goal.with_name(f"{goal.name}-{name}.npy") for name in kinds}

    def pieces() -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        for part in _native.blocks(given, 1):
            yield part, *relation.upto(t, numbers, part)
            _native.release(*kinds.values())

    if not all(file.exists() for file in files.values()):
        counts = [len(place) for _, _, place in pieces()]
        borders = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        for name, values in kinds.items():
            with _files.atomic_array(
                files[name], values.dtype, (*values.shape[:-1], borders[-1])
            ) as out:
                for (part, ends, place), low, high in zip(
                    pieces(), borders, borders[1:], strict=False
                ):
                    out[..., low:high] = ends if values is given else values[part][place]
                    _native.release(out)
    return Relation(**{name: _files.open_array(file, sealed=True) for name, file in files.items()})


def _write_edge_index(csr: CSR, path: Path) -> None:
    """The edges of a CSR as a list, sorted by target."""
    with _files.atomic_array(path, csr.indices.dtype, (2, csr.num_edges)) as out:
        for first, last in row_blocks(csr):
            begin, end = int(csr.indptr[first]), int(csr.indptr[last])
            out[0, begin:end] = csr.indices[begin:end]
            out[1, begin:end] = np.repeat(
                np.arange(first, last), np.diff(csr.indptr[first : last + 1])
            )
            _native.release(out, csr.indices)
