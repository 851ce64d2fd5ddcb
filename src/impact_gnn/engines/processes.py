"""Runs tasks in other processes, several at a time.

A forked process has the memory of this one: imports, graphs and hops are neither sent to it nor
computed again. Only its result is sent back. Where none can be forked, joblib starts new ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from impact_gnn.checks import WorkerLost

ATTEMPTS = 3  # at tasks whose process was killed
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux' prctl


def can_fork() -> bool:
    """Return whether processes may be forked: on Linux, as long as no GPU is in use.

    A process of a `multiprocessing.Pool` may have no processes of its own.
    """
    if sys.platform != "linux" or multiprocessing.current_process().daemon:
        return False
    torch = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def run_forked(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    jobs: int,
    prepare: Callable[[Any], None],
    starting: Callable[[Any], bool],
) -> Iterator[Any]:
    """Yield `function(task)` for every task, as `Engine.run_tasks` does."""
    attempts: Counter[int] = Counter()
    results: dict[int, Any] = {}
    running: dict[Connection, tuple[int, BaseProcess]] = {}

    def start(position: int) -> None:
        attempts[position] += 1
        prepare(tasks[position])
        with _deferred_interrupt():
            receiver, process = _fork(function, tasks[position])
            running[receiver] = position, process

    # Asked for one by one: a task starts when another one has ended.
    waiting = itertools.takewhile(lambda position: starting(tasks[position]), range(len(tasks)))
    num_yielded = 0
    try:
        while True:
            for position in itertools.islice(waiting, jobs - len(running)):
                start(position)
            if not running:
                return
            for receiver in wait(list(running)):
                assert isinstance(receiver, Connection)
                position, process = running.pop(receiver)
                is_complete, result = _receive(receiver, process)
                if is_complete:
                    results[position] = result
                elif attempts[position] < ATTEMPTS:
                    start(position)
                else:
                    raise _lost_worker()
            while num_yielded in results:
                yield results.pop(num_yielded)
                num_yielded += 1
    finally:
        for _, process in running.values():
            process.kill()


def run_spawned(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    jobs: int,
    starting: Callable[[Any], bool],
) -> Iterator[Any]:
    """Run tasks in new processes, where none can be forked."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    done = 0
    for _ in range(ATTEMPTS):
        started = itertools.takewhile(starting, tasks[done:])
        # A task starts when another one has ended. Large arrays reach other processes as
        # memory-mapped files.
        parallel = Parallel(n_jobs=jobs, pre_dispatch=jobs, batch_size=1, return_as="generator")
        try:
            for result in parallel(map(delayed(function), started)):
                done += 1
                yield result
            return
        except BrokenProcessPool:
            continue
    raise _lost_worker()


def _lost_worker() -> WorkerLost:
    """Return the error for processes that are killed again and again."""
    return WorkerLost(
        f"a process that fitted a model was killed {ATTEMPTS} times, most likely because "
        f"memory ran out; use fewer jobs (--jobs 1)."
    )


@contextlib.contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Let Ctrl-C wait for the end of a block: Python loses an interrupt while it forks."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _fork(function: Callable[[Any], Any], task: Any) -> tuple[Connection, BaseProcess]:
    """Start a process that sends the result of one task."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_run_and_send, args=(sender, function, task), daemon=True
    )
    with warnings.catch_warnings():
        # Python warns of other threads; theirs are progress bars, which the process never touches.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    # The process has the only open end, so that its death closes the pipe.
    sender.close()
    return receiver, process


def _run_and_send(sender: Connection, function: Callable[[Any], Any], task: Any) -> None:
    """Send the result of a task, or its exception, and end without any clean-up of the parent's."""
    # It can send functions of a notebook, which parts of methods may have.
    from joblib.externals.loky.backend.reduction import dumps

    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    os.environ["OMP_NUM_THREADS"] = "1"  # for our kernels too: other cores have their own process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted and ends this process
    try:
        result = True, function(task)
    except BaseException as error:  # raised again in the parent
        result = False, error
    sender.send_bytes(dumps(result))
    os._exit(0)


def _receive(receiver: Connection, process: BaseProcess) -> tuple[bool, Any]:
    """Return whether a process completed its task, and the result; raise its exception."""
    try:
        is_result, value = receiver.recv()
    except (EOFError, OSError):  # killed before or while it sent its result
        return False, None
    finally:
        receiver.close()
        process.join()
    if not is_result:
        raise value
    return True, value
