"""The engine for several machines: the tasks of `Disk` on the workers of a Dask cluster that share a directory.

Dask is imported when the engine is used. What travels is the plan (sizes and paths) and the numbers of slices and
rows; X, edges and hops are read and written as files.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files, checks
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation import job, paging, slices
from impact_gnn.propagation.disk import STORAGE, Disk
from impact_gnn.propagation.disk_operator import DiskOperator
from impact_gnn.propagation.executors import Complete, Local, Tick
from impact_gnn.propagation.hops import operator as in_memory
from impact_gnn.propagation.job import Job
from impact_gnn.propagation.operator import Operator
from impact_gnn.propagation.paging import Stored
from impact_gnn.propagation.plan import Plan
from impact_gnn.propagation.progress import Watcher
from impact_gnn.propagation.stored_csr import StoredCSR

SLICES_PER_THREAD = 2
"""At least so many slices for every thread of the cluster, where there are enough columns: they end together."""

RANGES_PER_THREAD = 4
"""Into so many ranges of rows per thread the copying is divided."""


@dataclass(frozen=True, eq=False)
class Dask:
    """Hops as `.npy` files in a directory that all workers of a Dask cluster see, one task per slice of columns.

    A task that fails or whose worker dies is done again elsewhere. Like `Disk` it goes on after a crash and refuses a
    directory that belongs to something else.

    Args:
        client: A `dask.distributed.Client`, or the address of a scheduler.
        directory: On a file system that the workers share with this process, under the same path. By default a
            temporary one that is gone when the arrays are: for workers on this machine.
        memory: What the tasks of one worker may take together.
        storage: As for `Disk`.
        retries: How often a failing task is done again.
        progress: As for `Disk`.
    """

    client: Any
    directory: str | Path | None = None
    memory: str | int = "2GB"
    storage: str | None = None
    retries: int = 3
    progress: Watcher = False

    def __post_init__(self) -> None:
        _files.byte_size(self.memory)
        if self.storage is not None:
            checks.choice("storage", self.storage, STORAGE)
        if not (isinstance(self.client, str) or hasattr(self.client, "submit")):
            raise InputError(
                f"client is a {type(self.client).__name__}; give a dask.distributed.Client or a scheduler's address "
                f"such as 'tcp://host:8786'."
            )

    def hops(self, operators: Sequence[Operator | DiskOperator], x: Any) -> list[np.ndarray]:
        """Hop k is `operators[k]` applied to hop k−1, the first one to `x`; memory maps of the files.

        Args:
            operators: From `operator`, or in memory (then they are written to the directory first).
            x: [N, f]. Where it is mapped from a file that workers see, they read that file.
        """
        if not operators:
            return []
        with self._connected() as client, self._place() as directory:
            threads = [number for number in client.nthreads().values() if number]
            if not threads:
                raise InputError("the cluster has no workers; start some, or call client.wait_for_workers(1) before.")
            x = job.features(x)
            dtype = x.dtype if self.storage is None else np.dtype(self.storage)
            share = _files.byte_size(self.memory) // max(threads)
            work = Job(directory, operators, x, share, dtype, 1, SLICES_PER_THREAD * sum(threads))
            return work.run(Cluster(client, self.retries), self.progress)

    def operator(
        self,
        graph: TemporalGraph | str | Path,
        relation: Triple | None = None,
        *,
        weighting: str | np.ndarray = "plain",
        norm: str = "mean",
        self_loop: bool = False,
        undirected: bool = False,
    ) -> Operator | DiskOperator:
        """As `Disk.operator`; edges are sorted by this process, in memory if there is no directory."""
        if self.directory is None and isinstance(graph, TemporalGraph) and not undirected:
            return in_memory(graph, relation, weighting=weighting, norm=norm, self_loop=self_loop)
        return self._disk().operator(
            graph, relation, weighting=weighting, norm=norm, self_loop=self_loop, undirected=undirected
        )

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
        """As `Disk.edges`; edges are sorted by this process."""
        return self._disk().edges(files, num_sources, num_targets, weight=weight, undirected=undirected, name=name)

    def within(self, name: str) -> Dask:
        """The same engine in a directory of its own, `<directory>-<name>`."""
        directory = None if self.directory is None else Path(f"{self.directory}-{name}")
        return Dask(self.client, directory, self.memory, self.storage, self.retries, self.progress)

    def _disk(self) -> Disk:
        if self.directory is None:
            raise InputError("edges are sorted into files that workers see; give Dask a directory to do that.")
        return Disk(self.directory, self.memory, self.storage)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        if not isinstance(self.client, str):
            yield self.client
            return
        distributed = _distributed()
        try:
            client = distributed.Client(self.client, timeout=10)
        except (OSError, ValueError) as error:
            raise InputError(f"there is no Dask scheduler at {self.client} ({error}); start one there.") from None
        with client:
            yield client

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path]:
        if self.directory is not None:
            yield Path(self.directory).absolute()
            return
        # Mapped files stay readable after their names are gone.
        with tempfile.TemporaryDirectory(prefix="impact-gnn-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary) / "hops"


@dataclass(frozen=True, eq=False)
class Cluster:
    """Tasks by the workers of a cluster, each by one thread."""

    client: Any
    retries: int

    def cut(self, plan: Plan, x: np.ndarray, tick: Tick) -> list[bytes]:
        """By the workers where X is a file that they see, by this process otherwise."""
        self._refuse_unless_seen(plan)
        stored = paging.of(x)
        if stored is None or not all(self.client.run(_sees, stored.path.absolute()).values()):
            return Local().cut(plan, x, tick)
        stored = Stored(stored.path.absolute(), stored.dtype, stored.shape, stored.position)
        found = self._all(slices.cut_rows, [(plan, stored, *each, True) for each in self._ranges(stored)], tick)
        return [digest for each in found for digest in each]

    def slices(self, plan: Plan, todo: list[tuple[int, int]], complete: Complete, tick: Tick) -> None:
        """One task per slice; workers see to it that their files are on disk."""
        self._refuse_unless_seen(plan)
        work = {n: sum(plan.work(hop, n) for hop in range(last + 1, plan.num_hops + 1)) for n, last in todo}
        for number in self._as_done(slices.whole_slice, [(plan, *each, 1) for each in todo]):
            complete(number, plan.num_hops, None)
            tick(work[number])

    def join(self, plan: Plan, hop: int, target: Stored, tick: Tick) -> None:
        """One task per range of rows."""
        self._all(slices.join_rows, [(plan, hop, target, *each, True) for each in self._ranges(target)], tick)

    def map(self, function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> list[Any]:
        """`function(*task)` for every task, in order."""
        return self._all(function, tasks, lambda share: None)

    def _ranges(self, stored: Stored) -> list[tuple[int, int]]:
        """A few ranges of rows for every thread."""
        most = RANGES_PER_THREAD * sum(self.client.nthreads().values())
        return slices.row_ranges(stored.shape[0], paging.block_rows(stored), most)

    def _all(self, function: Callable[..., Any], tasks: list[tuple[Any, ...]], tick: Tick) -> list[Any]:
        found: list[Any] = [None] * len(tasks)
        numbered = [(number, function, task) for number, task in enumerate(tasks)]
        for number, result in self._as_done(_numbered, numbered):
            found[number] = result
            tick(1 / len(tasks))
        return found

    def _as_done(self, function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> Iterator[Any]:
        distributed = _distributed()
        futures = [self.client.submit(function, *task, retries=self.retries, pure=False) for task in tasks]
        try:
            for future in distributed.as_completed(futures):
                try:
                    yield future.result()
                except distributed.scheduler.KilledWorker as error:
                    raise InputError(
                        f"workers died again and again while doing one task ({error}); they may lack memory: lower "
                        f"memory=... or give them more, and run again to go on."
                    ) from None
        finally:
            self.client.cancel(futures)

    def _refuse_unless_seen(self, plan: Plan) -> None:
        blind = [worker for worker, seen in self.client.run(_sees, plan.directory).items() if not seen]
        if blind:
            raise InputError(
                f"{plan.directory} is not seen by {checks.listing(blind, 3)}; choose a directory on a file system that "
                f"all workers share, under the same path."
            )


def _sees(path: Path) -> bool:
    return path.exists()


def _numbered(number: int, function: Callable[..., Any], task: tuple[Any, ...]) -> tuple[int, Any]:
    return number, function(*task)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError(
            "the Dask engine needs dask.distributed; install it with: pip install 'impact-gnn[distributed]'."
        ) from None
    return distributed
