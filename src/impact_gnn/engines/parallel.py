"""Runs independent tasks in this process, or in several ones with one thread each.

Results come back in the order of the tasks, so that the number of processes changes nothing but
the time. Large arrays reach the processes as memory-mapped files, which joblib takes care of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import BrokenProcessPool

from impact_gnn.checks import WorkerLost

ATTEMPTS = 3  # at tasks whose process was killed


def run_in_processes(
    function: Callable[[Any, Any], Any],
    shared: Any,
    tasks: Sequence[Any],
    *,
    jobs: int,
    starting: Callable[[Any], bool],
) -> Iterator[Any]:
    """Yield `function(shared, task)` for every task; see `Engine.run_tasks`."""
    done = 0

    def started() -> Iterator[Any]:
        for task in tasks[done:]:
            if not starting(task):
                return
            yield delayed(function)(shared, task)

    for _ in range(ATTEMPTS):
        # A task starts when another one has ended; with one job, in this process.
        parallel = Parallel(n_jobs=jobs, pre_dispatch=jobs, batch_size=1, return_as="generator")
        try:
            for result in parallel(started()):
                done += 1
                yield result
            return
        except BrokenProcessPool:
            continue
    raise WorkerLost(
        f"a process that fitted a model was killed {ATTEMPTS} times, most likely because memory "
        f"ran out; use fewer jobs (--jobs 1)."
    )
