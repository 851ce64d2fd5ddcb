"""The engine for graphs whose features, or edges, do not fit into memory.

Everything lies in `.npy` files under one directory. Each folder is named by a digest of its inputs:

    edges/<digest>/      a relation grouped by target (`edges.sort_edges`)
    operators/<digest>/  an operator: its table, the periods of its nodes, the scales of its rows
    hops/<digest>/       hops, one file per hop and slice of columns (`slices.Job`)
    graphs/<digest>/     a graph as of a time, or with edges in both directions
    arrays/, children/   scratch arrays, and child engines

A file gets its name only when it is complete. So a run that was killed goes on where it stopped,
and other inputs never read the wrong files. Sealed files (`sealed=True`) have a checksum that is
verified on opening.

The lock file (`_files.LOCK`) has two meanings. Its existence says that the directory is ours, so
that its content may be replaced and removed. An flock on it says that the directory is in use.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from impact_gnn import _files, _native, checks
from impact_gnn._progress import Counter, Progress, watched
from impact_gnn.checks import InputError, listing
from impact_gnn.engines.edges import EdgeList, StoredCSR, csr_arrays, describe_csr, sort_edges
from impact_gnn.engines.engine import FEW_ROWS, Engine
from impact_gnn.engines.hop import Features, Hop, SlicedHop, selected_hop
from impact_gnn.engines.operator import Operator, row_blocks
from impact_gnn.engines.slices import (
    OPERATOR_OPTIONS,
    Job,
    StoredOperator,
    run_slice,
    slice_borders,
)
from impact_gnn.graph import Nodes, Relation, TemporalGraph, Triple, storage
from impact_gnn.graph.csr import CSR, earliest

STORAGE = ("float16", "float32", "float64")
DIGEST_NAME = re.compile(r"[0-9a-f]{24}")
TEMPORARY_NAME = re.compile(r"tmp\w+|[0-9a-f]{24}\.npy")
DIGEST_FOLDERS = ("edges", "operators", "hops", "graphs")
OWN_ENTRIES = (*DIGEST_FOLDERS, "arrays", "children", _files.LOCK)


class FileEngine(Engine):
    """Base class of `Disk` and `Dask`, which differ in who runs the tasks.

    Subclasses are dataclasses.
    """

    directory: str | Path | None
    memory: str | int
    storage: str | None
    progress: bool | Progress
    parent: FileEngine | None  # the engine whose directory contains this one's

    def __post_init__(self) -> None:
        super().__post_init__()
        _files.byte_size(self.memory)
        if self.storage is not None:
            checks.choice("storage", self.storage, STORAGE)

    def csr(self, graph: TemporalGraph, relation: Triple) -> CSR:
        cached = graph.cached_csr(relation)
        # The engine that sorted it may have been cleared.
        if isinstance(cached, StoredCSR) and cached.directory.exists():
            return cached
        with self._working():
            csr = self._sort_relation(graph, relation)
        graph.cache_csr(relation, csr)
        return csr

    def operator(self, *arguments: Any, **options: Any) -> Operator:
        operator = super().operator(*arguments, **options)
        if not operator.balanced:
            return operator
        with self._working():  # it has a weight per edge, which belongs in a file
            return self._stored_operator(operator).open()

    def _hops(
        self, operators: Sequence[Operator], x: Features, rows: ndarray | None, dtype: Any
    ) -> list[Hop]:
        few_rows = rows
        # For many rows all are computed: the file then serves other rows as well.
        if rows is not None and len(rows) >= FEW_ROWS * operators[-1].csr.num_targets:
            few_rows = None
        with self._working():
            stored_dtype = np.dtype(dtype or self.storage or x.dtype)
            job = self._job(operators, x, few_rows, stored_dtype)
            missing = job.missing()
            if missing:
                # Refused now, with a sentence, and not by a full disk in an hour.
                size = sum(math.prod(job.shape(*file)) for file in missing)
                _files.require_space(self.root, size * job.dtype.itemsize)
                # A slice goes through all of its missing hops in one task.
                slices = sorted({slice_index for hop, slice_index in missing})
                counter = Counter(watched(self.progress), "propagating", len(slices))
                tasks = [(job, slice_index) for slice_index in slices]
                for _ in self.map_tasks(run_slice, tasks):
                    counter.advance()
            hops: list[Hop] = list(map(job.hop, range(1, len(job.num_nodes))))
        if rows is None:
            return hops
        # All hops but the last are stored for all nodes and narrowed to `rows` here; so is the
        # last one, unless it was computed for few rows only.
        num_full_hops = len(operators) - (few_rows is not None)
        hops[:num_full_hops] = [selected_hop(hop, rows) for hop in hops[:num_full_hops]]
        return hops

    def graph(
        self, graph: TemporalGraph, *, upto: int | None = None, undirected: bool = False
    ) -> TemporalGraph:
        with self._working():
            if upto is not None:
                graph = self._upto(graph, upto)
            return self._undirected(graph) if undirected else graph

    def empty(self, shape: tuple[int, int], dtype: Any) -> ndarray:
        with self._working():
            _files.require_space(self.root, math.prod(shape) * np.dtype(dtype).itemsize)
            arrays = self.root / "arrays"
            arrays.mkdir(exist_ok=True)
            folder = tempfile.mkdtemp(dir=arrays)
            return _files.create_array(Path(folder) / "values.npy", dtype, shape)

    def stored(self, array: ndarray) -> SlicedHop:
        array.flush()  # type: ignore[attr-defined]
        return SlicedHop((array,), _files.digest(array))

    def clear(self) -> None:
        """Remove what engines wrote, unless another process works there; links are not followed.

        A directory without our lock file, and entries whose names no engine gives, are somebody
        else's.
        """
        if not (self.root / _files.LOCK).is_file():
            return
        with contextlib.suppress(InputError), self._locked():
            for name in DIGEST_FOLDERS:
                _remove_entries(self.root / name, DIGEST_NAME)
            _remove_entries(self.root / "arrays", TEMPORARY_NAME)
            for child in _plain_entries(self.root / "children"):
                # By its path: the name of a child is already safe.
                replace(self, directory=child, parent=self).clear()  # type: ignore[type-var]
                _remove_if_empty(child)
            _remove_if_empty(self.root / "children")
            _files.remove(self.root / _files.LOCK)

    def fits(self, size: int) -> bool:
        # Half of the cap, because scaling loaded hops for training makes a second copy of them.
        return size <= _files.byte_size(self.memory) // 2

    def max_jobs(self, size: int) -> int:
        return 1  # the cap is for one process

    def child(self, name: str) -> Any:
        directory = self.root / "children" / _files.safe_name(name)
        return replace(self, directory=directory, parent=self)  # type: ignore[type-var]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the directory; refuse a child behind a link, whose files are somebody else's."""
        engine: FileEngine = self
        while engine.parent is not None:
            _files.require_plain(engine.root.parent, directory=True)
            _files.require_plain(engine.root, directory=True)
            engine = engine.parent
        with _files.locked(self.root):
            yield

    def _check_directory_content(self) -> None:
        """Refuse a directory with files that no engine wrote; without our lock it must be empty."""
        path = self.root
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file; choose a directory.")
        entries = list(path.iterdir()) if path.exists() else []
        known = OWN_ENTRIES if (path / _files.LOCK).is_file() else ()
        # A link may lead to files of somebody else.
        foreign = [entry.name for entry in entries if entry.name not in known or entry.is_symlink()]
        if foreign:
            raise InputError(
                f"{path} contains other files ({listing(sorted(foreign), 3)}); "
                f"choose a new or empty directory."
            )
        if self.parent is not None:
            self.parent._check_directory_content()

    def _mark_parents(self) -> None:
        """Put lock files around a child: directories with other content must have one."""
        if self.parent is not None:
            self.parent._mark_parents()
            self.parent.root.mkdir(parents=True, exist_ok=True)
            (self.parent.root / _files.LOCK).touch()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Check and lock the directory, and remove half-written files."""
        path = self.root
        self._check_directory_content()
        self._mark_parents()
        with _files.explain_disk_full(path), self._locked():
            for name in DIGEST_FOLDERS:
                _refuse_links(path / name)
                _files.sweep(path / name)
            yield

    @abstractmethod
    def map_tasks(
        self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Call the function for every tuple of arguments and yield the results in order."""

    @property
    @abstractmethod
    def root(self) -> Path:
        """Absolute path of the directory."""

    @property
    @abstractmethod
    def task_memory(self) -> int:
        """Bytes that one task may take."""

    @property
    @abstractmethod
    def min_slices(self) -> int:
        """About the least number of slices that keeps all workers busy."""

    def _sort_relation(
        self, graph: TemporalGraph, relation: Triple, *, both_directions: bool = False
    ) -> StoredCSR:
        """Sort the edges of a relation by target.

        With `both_directions`, reverse edges are added, and parallel edges merged.
        """
        part = graph.relations[relation]
        sizes = [graph.nodes[kind].num_nodes for kind in (relation[0], relation[2])]
        key = _files.digest(part.edge_index, part.weight, *sizes, both_directions)
        goal = self.root / "edges" / key
        # Written last, so the folder is complete.
        if (goal / "csr.json").exists():
            return StoredCSR.open(goal)
        with _files.atomic_directory(goal, own_files=_everything) as temporary:
            # Workers receive paths, never arrays.
            unsorted = temporary / "unsorted"
            weight = None
            if part.weight is not None:
                weight = self._path_of(part.weight, unsorted / "weight.npy")
            edges = EdgeList(
                edge_index=self._path_of(part.edge_index, unsorted / "edge_index.npy"),
                weight=weight,
                num_sources=sizes[0],
                num_targets=sizes[1],
                both_directions=both_directions,
            )
            sort_edges(edges, temporary, memory=self.task_memory, map_tasks=self.map_tasks)
            _files.remove(unsorted)
        return StoredCSR.open(goal)

    def _path_of(self, values: ndarray, copy: Path) -> Path:
        """Return the file that holds an array; one in memory is copied there."""
        file = _native.file_of(values)
        if file is not None:
            return Path(file)
        if not copy.exists():
            _files.save_array(copy, values, sealed=True)
        _files.open_array(copy, sealed=True)  # refuses a damaged copy
        return copy

    def _job(
        self, operators: Sequence[Operator], x: Any, rows: ndarray | None, dtype: np.dtype
    ) -> Job:
        # Hops mostly share one operator, which is written once.
        by_id = {id(operator): self._stored_operator(operator) for operator in operators}
        stored = tuple(by_id[id(operator)] for operator in operators)
        # At hop 0, which is `x`, and after every operator.
        num_nodes = (x.shape[0], *(operator.csr.num_targets for operator in operators))
        # An array is identified by its content, a hop by the key of its computation.
        x_key = _files.digest(x) if isinstance(x, ndarray) else x.key
        operator_keys = [operator.folder.name for operator in stored]
        # All that the values depend on; the memory limit is not among it.
        key = _files.digest(x_key, operator_keys, rows, dtype.str)
        # Per source a period, of one or more bytes, and for "sym" a scale of eight bytes.
        node_bytes = max(
            operator.source_period.nbytes + 8 * operator.csr.num_sources * (operator.norm == "sym")
            for operator in operators
        )
        # A slice of the values that are read must fit; results are streamed to files.
        most_nodes = max(num_nodes[:-1])
        memory = self.task_memory - node_bytes
        column_borders = slice_borders(x.shape[1], most_nodes, dtype, memory, self.min_slices)
        directory = self.root / "hops" / key
        job = Job(
            directory=directory,
            key=key,
            operators=stored,
            x=x,
            num_nodes=num_nodes,
            rows=rows,
            column_borders=column_borders,
            dtype=dtype,
            threads=self.threads,
        )
        borders_file = directory / "columns.json"
        if borders_file.exists():
            # The slices of an earlier run are used again, unless it began with more memory.
            stored_borders = tuple(_files.read_json(borders_file, sealed=True))
            earlier = replace(job, column_borders=stored_borders)
            is_narrow = max(np.diff(stored_borders)) <= max(np.diff(column_borders))
            if is_narrow or not earlier.missing():
                return earlier
            _files.remove(directory)
        directory.mkdir(parents=True, exist_ok=True)
        _files.write_json(borders_file, list(column_borders), sealed=True)
        return job

    def _stored_operator(self, operator: Operator) -> StoredOperator:
        """Write an operator, with its edges, periods and scales, to files."""
        csr = operator.csr
        if not isinstance(csr, StoredCSR):
            csr = self._stored_csr(csr)
        arrays = {
            "table": operator.table,
            "source": operator.source_period,
            "target": operator.target_period,
        }
        options = {name: getattr(operator, name) for name in OPERATOR_OPTIONS}
        # All that the operator depends on; equal operators share a folder.
        key = _files.digest(str(csr.directory), *options.values(), *arrays.values())
        stored = StoredOperator(self.root / "operators" / key, csr.directory, options)
        if stored.folder.exists():
            return stored
        with _files.atomic_directory(stored.folder, own_files=_everything) as temporary:
            if operator.norm == "sym":  # its kernel reads the scales of all nodes
                arrays["scale"] = operator.row_scale
            for name, values in arrays.items():
                _files.save_array(temporary / f"{name}.npy", values, sealed=True)
            if operator.balanced:
                path = temporary / "weight.npy"
                # Balanced weights are as many as edges, and are written block by block.
                with _files.atomic_array(path, operator.weight_dtype, (csr.num_edges,)) as weight:
                    operator.balance(weight)
        return stored

    def _stored_csr(self, csr: CSR) -> StoredCSR:
        """Write a CSR in memory to files."""
        key = _files.digest(csr.indptr, csr.indices, csr.weight, csr.num_sources)
        goal = self.root / "edges" / key
        if not (goal / "csr.json").exists():
            with _files.atomic_directory(goal, own_files=_everything) as temporary:
                for name, values in csr_arrays(csr).items():
                    _files.save_array(temporary / f"{name}.npy", values, sealed=True)
                describe_csr(temporary, csr.num_sources, weighted=csr.weight is not None)
        return StoredCSR.open(goal)

    def _undirected(self, graph: TemporalGraph) -> TemporalGraph:
        """Compute `graph.undirected()`; edges within one type are sorted and merged in files."""
        relations: dict[Triple, Relation] = {}
        sorted_edges: dict[Triple, StoredCSR] = {}
        for triple, part in graph.both_ways().items():
            if triple[0] != triple[2]:
                # Between two types the reverse is a view of the same edges.
                relations[triple] = part
                continue
            csr = self._sort_relation(graph, triple, both_directions=True)
            path = csr.directory / "edge_index.npy"
            if not path.exists():
                _write_edge_index(csr, path)
            time = part.time
            if time is not None:
                time = self._earliest(csr, part.edge_index, time)
            edge_index = _files.open_array(path, sealed=True)
            relations[triple] = Relation(edge_index, csr.weight, time)
            sorted_edges[triple] = csr
        undirected = graph.with_parts(dict(graph.nodes), relations)
        for triple, csr in sorted_edges.items():
            undirected.cache_csr(triple, csr)
        return undirected

    def _earliest(self, csr: StoredCSR, edge_index: ndarray, time: ndarray) -> ndarray:
        """Store the times of merged edges with them; the file's name identifies the times."""
        # Edges may be the same with other times.
        path = csr.directory / f"time-{_files.digest(time)}.npy"
        if not path.exists():
            # As many rows at a time as fit into memory, with a time and a source per edge. Each
            # block reads all unsorted edges.
            blocks = row_blocks(csr, max(1, self.task_memory // 16))
            with _files.atomic_array(path, np.int64, (csr.num_edges,)) as merged:
                for first, last in blocks:
                    edges = slice(csr.indptr[first], csr.indptr[last])
                    merged[edges] = earliest(csr, edge_index, time, (first, last))
                    _native.release(merged, csr.indices)
        return _files.open_array(path, sealed=True)

    def _upto(self, graph: TemporalGraph, t: int) -> TemporalGraph:
        """Compute `graph.upto(t)`; features and edges are filtered block by block into files."""
        inputs: list[Any] = []
        for kind, part in graph.nodes.items():
            inputs += [kind, part.time]
            # Only arrays are copied to files here; raw columns are not.
            if part.columns is None:
                inputs.append(part.features)
        for triple, relation in graph.relations.items():
            inputs += [triple, relation.edge_index, relation.weight, relation.time]
        goal = self.root / "graphs" / _files.digest(t, *inputs)
        positions = graph.positions_upto(t)
        nodes = {}
        for kind, part in graph.nodes.items():
            path = goal / f"{_files.safe_name(kind)}-x.npy"
            nodes[kind] = _take_nodes(part, positions[kind], path)
        # By type: the new position of every node, −1 for nodes that are left out; None if all stay.
        new_position = graph.numbers_upto(t, positions)
        relations = {}
        for relation_index, (triple, relation) in enumerate(graph.relations.items()):
            ends = [new_position[triple[0]], new_position[triple[2]]]
            relations[triple] = _filter_edges(relation, t, ends, goal / str(relation_index))
        return graph.with_parts(nodes, relations, upto=t)


@dataclass(frozen=True, eq=False)
class Disk(FileEngine):
    """Hops as files in a directory, within a cap on memory. An interrupted run can be continued.

    Args:
        directory: New, empty, or used by this engine before.
        memory: The cap for a slice of columns, and for sorting: "2GB", "500MB" or bytes. The
            interpreter comes on top.
        storage: The type of stored hops; by default that of the features.
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
    parent: FileEngine | None = field(default=None, repr=False, kw_only=True)

    @property
    def root(self) -> Path:
        return Path(self.directory).absolute()

    @property
    def task_memory(self) -> int:
        return _files.byte_size(self.memory)

    @property
    def min_slices(self) -> int:
        return 1

    def map_tasks(
        self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Run one task after the other: each uses all threads and the whole memory."""
        return itertools.starmap(function, tasks)


def _everything(folder: Path) -> None:
    """As `own_files`: None says that all files of a folder are ours. Its name is a digest."""


def _take_nodes(part: Nodes, positions: ndarray | None, path: Path) -> Nodes:
    """Select nodes of a type, all where `positions` is None; features go to the file `path`."""
    x = part.features
    if positions is None:
        return part
    # Raw columns are a view, encoded on request.
    if not isinstance(x, ndarray):
        return part.take(positions)
    if not path.exists():
        shape = (len(positions), x.shape[1])
        with _files.atomic_array(path, x.dtype, shape) as selected:
            for rows in _native.block_slices(selected):
                selected[rows] = x[positions[rows]]
                _native.release(selected, x)
    without_features = replace(part, features=None).take(positions)
    return replace(without_features, features=_files.open_array(path, sealed=True))


def _filter_edges(
    relation: Relation, t: int, new_position: list[ndarray | None], goal: Path
) -> Relation:
    """Compute `relation.upto(t, new_position)` into files whose names begin as `goal`.

    `new_position` is that of the sources and of the targets. Edges are filtered block by block.
    """
    arrays = {name: getattr(relation, name) for name in storage.EDGE_ARRAYS}
    arrays = {name: values for name, values in arrays.items() if values is not None}
    files = {name: goal.with_name(f"{goal.name}-{name}.npy") for name in arrays}

    def filtered() -> Iterator[tuple[slice, ndarray, ndarray]]:
        """Yield a block of edges, the new ends of the remaining edges, and their positions."""
        for block in _native.blocks(relation.edge_index, 1):
            yield block, *relation.upto(t, new_position, block)
            _native.release(*arrays.values())

    if not all(file.exists() for file in files.values()):
        # A first pass counts, because a file has its size from the beginning.
        size = sum(len(positions) for _, _, positions in filtered())
        for name, values in arrays.items():
            # Edges are the last axis, of [2, E] as of [E].
            shape = (*values.shape[:-1], size)
            with _files.atomic_array(files[name], values.dtype, shape) as remaining:
                begin = 0
                for block, ends, positions in filtered():
                    end = begin + len(positions)
                    # Ends have new positions; weights and times are copied.
                    if name != "edge_index":
                        ends = values[block][positions]
                    remaining[..., begin:end] = ends
                    _native.release(remaining)
                    begin = end
    stored = {name: _files.open_array(file, sealed=True) for name, file in files.items()}
    return Relation(**stored)


def _write_edge_index(csr: CSR, path: Path) -> None:
    """Write the edges of a CSR as a list, sorted by target."""
    shape = (2, csr.num_edges)
    with _files.atomic_array(path, csr.indices.dtype, shape) as edge_index:
        for first, last in row_blocks(csr):
            edges = slice(int(csr.indptr[first]), int(csr.indptr[last]))
            degrees = np.diff(csr.indptr[first : last + 1])
            edge_index[0, edges] = csr.indices[edges]
            # The target of every edge is the row in which it stands.
            edge_index[1, edges] = np.repeat(np.arange(first, last), degrees)
            _native.release(edge_index, csr.indices)


def _plain_entries(folder: Path) -> list[Path]:
    """The entries of a folder that are no links; none of a folder that is a link itself."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return [entry for entry in folder.iterdir() if not entry.is_symlink()]


def _remove_entries(folder: Path, names: re.Pattern[str]) -> None:
    """Remove the entries of a folder with names of ours, and the folder if nothing is left."""
    if not folder.is_symlink():
        _files.sweep(folder)  # what killed writers left
    for entry in _plain_entries(folder):
        if names.fullmatch(entry.name):
            _files.remove(entry)
    _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it is not there, or holds what is not ours
        folder.rmdir()


def _refuse_links(folder: Path) -> None:
    """Refuse a folder of ours in which an entry is a link: we would write through it."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_symlink():
            raise InputError(f"{entry} is a symbolic link in a folder of the engine; remove it.")
