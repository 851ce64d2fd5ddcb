"""The course of a run over files, the same on one machine and on a cluster; an `Executor` says who does the tasks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files
from impact_gnn._files import readable_size
from impact_gnn.checks import InputError
from impact_gnn.graph.csr import CSR
from impact_gnn.propagation import paging, slices, steps, stored_csr
from impact_gnn.propagation import plan as planning
from impact_gnn.propagation import threads as pool
from impact_gnn.propagation.disk_operator import DiskOperator
from impact_gnn.propagation.executors import Executor, Tick
from impact_gnn.propagation.manifest import Manifest, held
from impact_gnn.propagation.operator import Operator
from impact_gnn.propagation.passes import FLOATS
from impact_gnn.propagation.plan import Needs, Plan
from impact_gnn.propagation.progress import Progress, Watcher
from impact_gnn.propagation.room import nothing_lost, refuse_unless_room
from impact_gnn.propagation.stored_csr import StoredCSR


@dataclass(frozen=True, eq=False)
class Job:
    """Operations, X and the limits under which hops are made in `directory`.

    `memory` is what one slice may take, `at_once` the number of threads that share it, `least` the number of slices
    below which there is nothing to share out.
    """

    directory: Path
    operators: Sequence[Operator | DiskOperator]
    x: np.ndarray
    memory: int
    dtype: np.dtype
    at_once: int
    least: int = 1

    def needs(self) -> Needs:
        """What the run takes, without beginning it."""
        rows = planning.num_nodes(self.operators, len(self.x))
        columns = self._borders(rows, self.least)
        extra = planning.beside(self.operators, self.dtype, self.at_once)
        width = max(np.diff(columns), default=0)
        disk = planning.disk_need(columns[-1], rows, self.dtype) + self._operator_bytes()
        return Needs(len(columns) - 1, int(width), int(width) * max(rows[:-1]) * self.dtype.itemsize + extra, disk)

    def run(self, executor: Executor, watcher: Watcher) -> list[np.ndarray]:
        """Begins or goes on, to the end; the hops as memory maps."""
        with held(self.directory), nothing_lost(self.directory):
            rows = planning.num_nodes(self.operators, len(self.x))
            manifest = Manifest.open(self.directory, self._inputs())
            if manifest.x is not None and paging.checksum(self.x) != manifest.x:
                raise InputError(
                    f"{self.directory} was begun with another x (its checksum differs); choose another directory, or "
                    f"delete it to begin again."
                )
            plan = self._plan(manifest, rows)
            hops = range(1, plan.num_hops + 1)
            missing = [hop for hop in hops if not _is_whole(plan.hop_file(hop), plan.hop_shape(hop))]
            if missing:
                self._go_on(plan, manifest, missing, executor, watcher)
            if missing or not manifest.finished:
                shutil.rmtree(self.directory / "slices", ignore_errors=True)
                manifest.finish()
            return [_files.open_array(plan.hop_file(hop)) for hop in hops]

    def _go_on(self, plan: Plan, manifest: Manifest, missing: list[int], executor: Executor, watcher: Watcher) -> None:
        done = {number: _last_whole(plan, number, manifest.done(number)) for number in range(plan.num_slices)}
        todo = [(number, hop) for number, hop in done.items() if hop < missing[-1]]
        cut = manifest.x is not None and all(_has_slice(plan, 0, number) for number, hop in todo if hop == 0)
        need = self._check_room(plan)
        moved = [3.0 * size * plan.columns[-1] * plan.dtype.itemsize for size in plan.rows]
        work = sum(plan.work(hop, number) for number, last in todo for hop in range(last + 1, plan.num_hops + 1))
        with Progress(watcher, (0 if cut else moved[0]) + work + sum(moved[hop] for hop in missing)) as progress:
            progress.stage(f"{need} needed")
            if not manifest.begun:
                progress.stage("preparing")
                shutil.rmtree(self.directory / "operators", ignore_errors=True)
                for operator, step in zip(self._distinct, plan.steps, strict=True):
                    steps.prepare(operator, step, planning.block_rows(plan.columns, plan.dtype))
                manifest.begin(plan.columns)
            if todo and not cut:
                progress.stage("cutting x into slices")
                self._cut(plan, manifest, executor, lambda share: progress.advance(share * moved[0]))
            progress.stage(f"{len(todo)} of {plan.num_slices} slices, {plan.num_hops} hops")
            executor.slices(plan, todo, manifest.complete, progress.advance)
            manifest.checkpoint()
            shutil.rmtree(self.directory / "slices" / "0", ignore_errors=True)
            for hop in missing:
                progress.stage(f"joining hop {hop}")
                self._join(plan, hop, executor, lambda share: progress.advance(share * moved[hop]))  # noqa: B023

    def _cut(self, plan: Plan, manifest: Manifest, executor: Executor, tick: Tick) -> None:
        files = [
            paging.create(plan.slice_file(0, number), plan.dtype, plan.slice_shape(0, number))
            for number in range(plan.num_slices)
        ]
        found = paging.joint_checksum(executor.cut(plan, self.x, tick), self.x)
        for file in files:
            slices.flush(file.path)
        manifest.cut(found)

    def _join(self, plan: Plan, hop: int, executor: Executor, tick: Tick) -> None:
        goal = plan.hop_file(hop)
        if plan.num_slices == 1:
            os.replace(plan.slice_file(hop, 0), goal)
            return
        with _files.atomic_file(goal) as temporary:
            executor.join(plan, hop, paging.create(temporary, plan.dtype, plan.hop_shape(hop)), tick)
        shutil.rmtree(self.directory / "slices" / str(hop), ignore_errors=True)

    def _plan(self, manifest: Manifest, rows: tuple[int, ...]) -> Plan:
        columns = manifest.columns
        if columns is None:
            columns = self._borders(rows, self.least)
        elif not manifest.finished and max(np.diff(columns), default=0) > max(np.diff(self._borders(rows)), default=0):
            raise InputError(
                f"{self.directory} was begun with more memory, in slices of {max(np.diff(columns))} columns; give as "
                f"much again, or delete it to begin again."
            )
        made = tuple(
            steps.Step(csr, self.directory / "operators" / str(number), operator.norm, operator.self_loop)
            for number, (operator, csr) in enumerate(zip(self._distinct, self._edges, strict=True))
        )
        return Plan(self.directory, made, self._path, columns, rows, self.dtype)

    def _borders(self, rows: tuple[int, ...], least: int = 1) -> tuple[int, ...]:
        extra = planning.beside(self.operators, self.dtype, self.at_once)
        return planning.slice_borders(self.x.shape[1], max(rows[:-1]), self.dtype, self.memory, extra, least)

    @cached_property
    def _distinct(self) -> list[Operator | DiskOperator]:
        return list({id(each): each for each in self.operators}.values())

    @property
    def _path(self) -> tuple[int, ...]:
        place = {id(each): number for number, each in enumerate(self._distinct)}
        return tuple(place[id(each)] for each in self.operators)

    @cached_property
    def _edges(self) -> list[StoredCSR]:
        """The edges of every operation as they are, or will be, in files."""
        places = (self.directory / "operators" / str(number) / "edges" for number in range(len(self._distinct)))
        return [
            stored_csr.described(each.csr, place) if isinstance(each.csr, CSR) else each.csr
            for each, place in zip(self._distinct, places, strict=True)
        ]

    def _inputs(self) -> dict[str, Any]:
        """Everything the result depends on; X's checksum is found while it is cut."""
        described = [
            {
                "edges": csr.checksum,
                "sources": csr.num_sources,
                "targets": csr.num_targets,
                "norm": each.norm,
                "self_loop": each.self_loop,
                **{name: paging.checksum(getattr(each, name)) for name in ("table", "source_period", "target_period")},
            }
            for each, csr in zip(self._distinct, self._edges, strict=True)
        ]
        x = {"shape": list(self.x.shape), "dtype": self.x.dtype.str}
        return {"x": x, "storage": self.dtype.str, "operators": described, "path": list(self._path)}

    def _operator_bytes(self) -> int:
        total = 0
        for each in self._distinct:
            csr = each.csr
            total += 10 * csr.num_targets + csr.num_sources
            if isinstance(csr, CSR):
                total += csr.indptr.nbytes + csr.indices.nbytes + (0 if csr.weight is None else csr.weight.nbytes)
        return total

    def _check_room(self, plan: Plan) -> str:
        need = planning.disk_need(plan.columns[-1], plan.rows, self.dtype) + self._operator_bytes()
        refuse_unless_room(self.directory, need - sum(f.stat().st_size for f in _own_files(self.directory)))
        return f"{readable_size(need)} of disk"


def features(x: Any) -> np.ndarray:
    """X as an array or memory map of floats [N, f]; a path is opened."""
    if isinstance(x, (str, Path)):
        x = _files.open_array(Path(x))
    if not isinstance(x, np.ndarray) or x.ndim != 2:
        raise InputError(f"x has shape {getattr(x, 'shape', None)}; give a matrix [N, f] or the path of a .npy file.")
    if x.dtype not in FLOATS:
        raise InputError(f"x is of type {x.dtype}; give float16, float32 or float64 (x.astype(np.float32)).")
    return x


def default_threads(threads: int | None) -> int:
    """The number of threads, all cores by default."""
    return pool.available() if threads is None else threads


def _own_files(directory: Path) -> Iterator[Path]:
    for pattern in ("slices/*/*.npy", "operators/**/*.npy", "hop-*.npy"):
        yield from directory.glob(pattern)


def _is_whole(path: Path, shape: tuple[int, int]) -> bool:
    """Whether an array of that shape is in a file; a damaged one is not, and will be made again."""
    try:
        return path.exists() and paging.find(path).shape == shape
    except InputError:
        return False


def _has_slice(plan: Plan, hop: int, number: int) -> bool:
    return _is_whole(plan.slice_file(hop, number), plan.slice_shape(hop, number))


def _last_whole(plan: Plan, number: int, done: int) -> int:
    """The hop from which a slice has to go on: all before are on disk, joined or not."""
    for hop in range(1, done + 1):
        if not (_is_whole(plan.hop_file(hop), plan.hop_shape(hop)) or _has_slice(plan, hop, number)):
            done = hop - 1
            break
    while 0 < done < plan.num_hops and not _has_slice(plan, done, number):  # joined, and its slices gone
        done -= 1
    return done
