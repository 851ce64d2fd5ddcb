"""The engine for several machines: the tasks of `Disk` on the workers of a Dask cluster that share a directory.

What travels is paths and sizes; features, edges and hops are read and written as files. A task is a
range of targets to sort, or a slice of columns to take through all hops; a task whose worker dies
is done again elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files, _native
from impact_gnn._progress import Counter, Progress
from impact_gnn.checks import InputError, WorkerLost, listing, one_line
from impact_gnn.engines.base import Features, SlicedHop, checked_features
from impact_gnn.engines.disk import FileEngine
from impact_gnn.engines.operator import Operator

SLICES_PER_THREAD = 2
"""At least so many slices for every thread of the cluster, where there are enough columns: they end together."""

RETRIES = 3  # how often a task that failed is done again
CHECK = 2.0  # seconds between two looks at whether there still are workers


@dataclass(frozen=True, eq=False)
class Dask(FileEngine):
    """Hops as files in a directory that all workers of a Dask cluster see.

    Like `Disk` it goes on after a crash. Workers that stay away longer than `patience` seconds end
    the work with a `WorkerLost`; what is complete is kept.

    Args:
        client: A `dask.distributed.Client`, or the address of a scheduler.
        directory: On a file system that the workers share with this process, under the same path.
            By default a temporary one that goes with the engine: for workers on this machine.
        memory: What the tasks of one worker may take together.
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
    threads: int | None = field(default=1, init=False)
    _temporary: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.client, str) or hasattr(self.client, "submit")):
            raise InputError(
                f"client is a {type(self.client).__name__}; give a dask.distributed.Client or a scheduler's address "
                f"such as 'tcp://host:8786'."
            )
        if self.directory is None:
            object.__setattr__(
                self, "_temporary", tempfile.TemporaryDirectory(prefix="impact-gnn-")
            )

    @property
    def place(self) -> Path:
        return Path(self._temporary.name if self.directory is None else self.directory).absolute()

    @property
    def task_memory(self) -> int:
        """The tasks of one worker share its memory."""
        with self._connected() as client:
            return _files.byte_size(self.memory) // max(self._threads(client))

    @property
    def least_slices(self) -> int:
        with self._connected() as client:
            return SLICES_PER_THREAD * sum(self._threads(client))

    def hops(
        self,
        operators: Sequence[Operator],
        x: Features,
        *,
        rows: np.ndarray | None = None,
        dtype: Any = None,
    ) -> list[Any]:
        if isinstance(x, np.ndarray):
            x = self._in_file(x)
        return super().hops(operators, x, rows=rows, dtype=dtype)

    def _in_file(self, x: np.ndarray) -> SlicedHop:
        """Features as workers read them: from their own file if they are mapped from one, otherwise from a copy."""
        key = _files.digest(x)
        path = self.place / "arrays" / f"{key}.npy"
        if (name := _native.file_of(x)) is not None:
            return SlicedHop.open([name], key)
        with self._working():
            if not path.exists():
                _files.save_array(path, checked_features(x), sealed=True)
        return SlicedHop((_files.open_array(path, sealed=True),), key)

    def share(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        counter: Counter | None = None,
    ) -> list[Any]:
        with self._connected() as client:
            self._refuse_unless_seen(client)
            futures = [
                client.submit(function, *task, pure=False, retries=RETRIES) for task in tasks
            ]
            try:
                self._wait(client, futures, counter)
                return self._answer(client.gather, futures)
            except BaseException as error:
                with contextlib.suppress(WorkerLost):
                    self._answer(client.cancel, futures)
                from distributed import KilledWorker

                if isinstance(error, KilledWorker):
                    raise WorkerLost(
                        f"a task killed {RETRIES} workers, most likely for want of memory ({self.memory} each): "
                        f"give them more or lower memory=..., and run the same again to go on."
                    ) from None
                raise

    def _wait(self, client: Any, futures: list[Any], counter: Counter | None) -> None:
        """Until all tasks are done; gives up when nobody has been there to do them for longer than `patience`."""
        from distributed import wait

        waiting, seen = set(futures), time.monotonic()
        while waiting:
            done: set[Any] = set()
            with contextlib.suppress(TimeoutError):
                done = self._answer(
                    wait, waiting, timeout=CHECK, return_when="FIRST_COMPLETED"
                ).done
            for _ in done:
                if counter is not None:
                    counter.advance()
            waiting -= done
            if client.status == "running" and self._answer(client.nthreads):
                seen = time.monotonic()
            elif time.monotonic() - seen > self.patience:
                raise self._lost(
                    f"no worker of the cluster has been seen for {self.patience:.0f} seconds"
                )

    def _refuse_unless_seen(self, client: Any) -> None:
        seen: dict[str, Any] = {}
        # a worker that has just died sees nothing, and others will do its tasks
        with contextlib.suppress(OSError):
            seen = self._answer(client.run, _sees, str(self.place), on_error="return")
        blind = [worker for worker, sees in seen.items() if sees is False]
        if blind:
            raise InputError(
                f"{self.place} is not seen by {listing(blind)}; give a directory on a file system that all workers "
                f"share."
            )

    def _answer(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a call to the cluster gives; one that breaks off, or says nothing while patience lasts, is lost."""
        answers: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()

        def ask() -> None:
            try:
                answers.put((call(*arguments, **options), None))
            except BaseException as error:
                answers.put((None, error))

        threading.Thread(target=ask, daemon=True).start()  # a client would wait for ever
        try:
            answer, error = answers.get(timeout=self.patience)
        except queue.Empty:
            raise self._lost(
                f"the cluster has not answered for {self.patience:.0f} seconds"
            ) from None
        from distributed.comm import CommClosedError

        if isinstance(error, (CancelledError, CommClosedError)):
            raise self._lost("the connection to the scheduler was lost") from None
        if error is not None:
            raise error
        return answer

    def _lost(self, what: str) -> WorkerLost:
        kept = f"what is complete is kept in {self.place}"
        return WorkerLost(f"{what}; {kept}: start what is missing and run the same again to go on.")

    def _threads(self, client: Any) -> list[int]:
        threads = [number for number in self._answer(client.nthreads).values() if number]
        if not threads:
            raise InputError(
                "the cluster has no workers; start some, or call client.wait_for_workers(1) before."
            )
        return threads

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        if not isinstance(self.client, str):
            yield self.client
            return
        with connected(self.client, self.patience) as client:
            yield client


def connected(address: str, patience: float = 60.0) -> Any:
    """A client of the scheduler at an address."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError("a cluster needs dask; pip install 'impact-gnn[distributed]'.") from None
    try:
        if not address.startswith("inproc:"):
            _greet(address, patience)
        return Client(address, timeout=patience)
    # a server that is no scheduler may answer anything
    except Exception as error:
        reason = one_line(error) or f"nothing for {patience:.0f} seconds"
        raise InputError(
            f"no scheduler answers at {address} ({reason}); check the address."
        ) from None


def _greet(address: str, patience: float) -> None:
    """Exchanges the first messages with a scheduler; `Client` would wait for them without end."""
    from distributed import Security
    from distributed.comm import connect

    async def greet() -> None:
        options = Security().get_connection_args("client")
        comm = await asyncio.wait_for(connect(address, patience, **options), patience)
        await comm.close()

    # in a thread of its own, as there may be a loop in this one
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, greet()).result()


def _sees(path: str) -> bool:
    return Path(path).is_dir()
