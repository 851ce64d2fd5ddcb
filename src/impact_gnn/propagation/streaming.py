"""Work on pieces by several threads, with few pieces under way and results in the order of the pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from impact_gnn.propagation import threads as pool

Result = TypeVar("Result")


def in_order(
    function: Callable[..., Result], pieces: Iterable[tuple[Any, ...]], threads: int | None = None
) -> Iterator[Result]:
    """`function(*piece)` for every piece, in order; never more than one piece per thread and one waiting.

    Pieces are taken in the calling thread, so they may come from a reader that cannot be shared.

    Example:
        >>> list(in_order(pow, ((2, k) for k in range(5))))
        [1, 2, 4, 8, 16]
    """
    workers = pool.available() if threads is None else threads
    if workers <= 1:
        for piece in pieces:
            yield function(*piece)
        return
    under_way: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as executor:
        try:
            for piece in pieces:
                under_way.append(executor.submit(function, *piece))
                if len(under_way) > workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()
