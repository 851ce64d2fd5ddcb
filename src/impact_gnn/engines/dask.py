"""The engine for several machines: Dask workers that share a directory run the tasks of `Disk`.

Workers receive paths and sizes; features, edges and hops are read and written as files. A task is a
range of targets to sort, or a slice of columns to take through all hops. A task whose worker dies
is repeated elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy import ndarray

from impact_gnn import _files
from impact_gnn._progress import Progress
from impact_gnn.checks import InputError, WorkerLost, listing, one_line
from impact_gnn.engines.disk import FileEngine
from impact_gnn.engines.hop import Features, Hop, SlicedHop
from impact_gnn.engines.operator import Operator

SLICES_PER_THREAD = 2
"""About the least number of slices per thread of the cluster, so that threads end together."""

RETRIES = 3  # of a task that failed
CHECK = 2.0  # seconds between two checks whether there are workers


class _Cancelled(WorkerLost):
    """The cluster has cancelled a task, or is gone."""


@dataclass(frozen=True, eq=False)
class Dask(FileEngine):
    """Hops as files in a directory that all workers of a Dask cluster share.

    Like `Disk` it goes on after a crash. If there are no workers for longer than `patience`
    seconds, a `WorkerLost` ends the work; complete files stay.

    Args:
        client: A `dask.distributed.Client`.
        directory: On a file system that the workers share with this process, under the same path.
            By default a temporary one, removed with the engine: for workers on this machine.
        memory: The cap for all tasks of one worker together.
        storage: As for `Disk`.
        progress: As for `Disk`.
        patience: Seconds to wait for workers.
    """

    client: Any
    directory: str | Path | None = None
    memory: str | int = "2GB"
    storage: str | None = None
    progress: bool | Progress = False
    patience: float = 60.0
    parent: FileEngine | None = field(default=None, repr=False, kw_only=True)
    threads: int | None = field(default=1, init=False)
    _temporary: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not hasattr(self.client, "submit"):
            raise InputError(
                f"client is a {type(self.client).__name__}; pass a dask.distributed.Client."
            )
        if self.directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="impact-gnn-")
            object.__setattr__(self, "_temporary", temporary)

    @property
    def root(self) -> Path:
        return Path(self._temporary.name if self.directory is None else self.directory).absolute()

    @property
    def task_memory(self) -> int:
        """Bytes of one task; the tasks of one worker share its memory."""
        return _files.byte_size(self.memory) // max(self._threads())

    @property
    def min_slices(self) -> int:
        return SLICES_PER_THREAD * sum(self._threads())

    def _hops(
        self, operators: Sequence[Operator], x: Features, rows: ndarray | None, dtype: Any
    ) -> list[Hop]:
        if isinstance(x, ndarray):
            x = self._in_file(x)
        return super()._hops(operators, x, rows, dtype)

    def _in_file(self, x: ndarray) -> SlicedHop:
        """Return features that workers can read: from their own file, otherwise from a copy."""
        key = _files.digest(x)
        with self._working():
            path = self._path_of(x, self.root / "arrays" / f"{key}.npy")
        return SlicedHop.open([str(path)], key)

    def max_jobs(self, size: int) -> int:
        """Return the number of workers, or 1 if a graph is too large to be sent to them."""
        if size > _files.byte_size(self.memory):
            return 1
        return len(self._threads())

    def run_tasks(
        self,
        function: Callable[[Any, Any], Any],
        shared: Any,
        tasks: Sequence[Any],
        *,
        jobs: int,
        prepare: Callable[[Any, Any], None] = lambda shared, task: None,
        starting: Callable[[Any], bool] = lambda task: True,
    ) -> Iterator[Any]:
        if jobs == 1:
            yield from super().run_tasks(function, shared, tasks, jobs=1, starting=starting)
            return
        done = 0
        for attempt in range(1, RETRIES + 1):
            # Sent once, not with every task; hashing a graph would take longer.
            on_workers = self._answer(self.client.scatter, shared, hash=False)
            started = itertools.takewhile(starting, tasks[done:])
            pairs = zip(itertools.repeat(on_workers), started)
            try:
                for result in self._stream(function, pairs, jobs):
                    done += 1
                    yield result
                return
            except _Cancelled:
                # Dask cancels tasks when the only worker that had the graph has died.
                if attempt == RETRIES or self.client.status != "running":
                    raise

    def map_tasks(
        self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[Any]:
        # Before the first task: its failure on a worker would say less.
        self._check_directory()
        yield from self._stream(function, tasks, len(tasks))

    def _stream(
        self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], most: int
    ) -> Iterator[Any]:
        """Run tasks on workers and yield their results in order; `most` wait for a worker."""
        from distributed import KilledWorker

        futures: deque[Any] = deque()
        try:
            for task in tasks:
                # One more than there are workers, so that none waits for the next task.
                if len(futures) > most:
                    yield self._result(futures[0])
                    futures.popleft()
                futures.append(self.client.submit(function, *task, pure=False, retries=RETRIES))
            while futures:
                yield self._result(futures[0])
                futures.popleft()
        except KilledWorker:
            raise WorkerLost(
                f"a task killed {RETRIES} workers, most likely because {self.memory} of memory per "
                f"worker was not enough; give them more or lower memory=..., then run the same "
                f"again to continue."
            ) from None
        finally:
            with contextlib.suppress(WorkerLost):
                self._answer(self.client.cancel, list(futures))

    def _result(self, future: Any) -> Any:
        """Wait for a task; give up when there are no workers for longer than `patience`."""
        from distributed import wait

        last_alive = time.monotonic()
        while not future.done():
            with contextlib.suppress(TimeoutError):
                self._answer(wait, future, timeout=CHECK)
            # A scheduler without workers answers too, so workers are counted.
            if self.client.status == "running" and self._answer(self.client.nthreads):
                last_alive = time.monotonic()
            elif time.monotonic() - last_alive > self.patience:
                raise self._lost(
                    f"no worker of the cluster has answered for {self.patience:.0f} seconds"
                )
        return self._answer(future.result)

    def _check_directory(self) -> None:
        """Refuse a directory that some worker does not have."""
        answers: dict[str, Any] = {}
        # A worker that has just died answers nothing, and others will run its tasks.
        with contextlib.suppress(OSError):
            answers = self._answer(
                self.client.run, _is_directory, str(self.root), on_error="return"
            )
        without = [worker for worker, answer in answers.items() if answer is False]
        if without:
            raise InputError(
                f"{self.root} is not visible to {listing(without)}; "
                f"pass a directory on a file system that all workers share."
            )

    def _answer(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call the cluster; raise `WorkerLost` without an answer within `patience` seconds."""
        from distributed.comm import CommClosedError

        future: Future[Any] = Future()

        def ask() -> None:
            try:
                future.set_result(call(*arguments, **options))
            except BaseException as error:
                future.set_exception(error)

        # A client may wait without end; a daemon thread does not keep the process alive.
        threading.Thread(target=ask, daemon=True).start()
        try:
            return future.result(timeout=self.patience)
        except TimeoutError:
            if future.done():  # the call itself ran out of time
                raise
            raise self._lost(
                f"the cluster has not answered for {self.patience:.0f} seconds"
            ) from None
        except (CancelledError, CommClosedError):
            raise _Cancelled(str(self._lost("the connection to the scheduler was lost"))) from None

    def _lost(self, reason: str) -> WorkerLost:
        return WorkerLost(
            f"{reason}; completed work is stored in {self.root}; "
            f"start what is missing and run the same again to continue."
        )

    def _threads(self) -> list[int]:
        """Return the number of threads of each worker."""
        by_worker = self._answer(self.client.nthreads)
        threads = [number for number in by_worker.values() if number]
        if not threads:
            raise InputError(
                "the cluster has no workers; start some, or call client.wait_for_workers(1) first."
            )
        return threads


def connected(address: str, patience: float = 60.0) -> Any:
    """Connect a client to the scheduler at an address."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "a cluster requires dask; run pip install 'impact-gnn[distributed]'."
        ) from None
    try:
        # A scheduler in this process cannot be unreachable.
        if not address.startswith("inproc:"):
            _greet(address, patience)
        return Client(address, timeout=patience)
    # A server that is no scheduler may answer anything.
    except Exception as error:
        reason = one_line(error) or f"no answer for {patience:.0f} seconds"
        raise InputError(
            f"no scheduler answers at {address} ({reason}); check the address."
        ) from None


def _greet(address: str, patience: float) -> None:
    """Exchange the first messages with a scheduler; `Client` would wait for them without end."""
    from distributed import Security
    from distributed.comm import connect

    async def greet() -> None:
        options = Security().get_connection_args("client")
        comm = await asyncio.wait_for(connect(address, patience, **options), patience)
        await comm.close()

    # In a thread of its own, because this one may run an event loop.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, greet()).result()


def _is_directory(path: str) -> bool:
    return Path(path).is_dir()
