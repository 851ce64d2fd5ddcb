"""Stages whose results are kept, so that a run which was cut off goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph

STATE = "run.json"


@dataclass(frozen=True)
class Stages:
    """The working folder of a run: one JSON file per finished stage, and the fingerprint of what the run is about."""

    folder: Path

    @classmethod
    def open(cls, out: Path, fingerprint: str) -> Stages:
        """The working folder inside `out`; another run's folder is refused, a foreign one never touched."""
        folder = out / "work"
        state = folder / STATE
        if out.exists() and not out.is_dir():
            raise InputError(f"{out} is a file; choose a directory for the results.")
        if state.exists():
            known = _files.read_json(state)
            if not isinstance(known, dict) or known.get("fingerprint") != fingerprint:
                raise InputError(
                    f"{out} holds the results of another graph or other options; choose another --out, or remove it."
                )
        elif out.is_dir() and any(out.iterdir()):
            raise InputError(f"{out} exists and holds other files; choose a new or an empty directory.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{out} cannot be written to ({error.strerror}); choose another place.") from None
        if not state.exists():
            _files.write_json(state, {"fingerprint": fingerprint})
        return cls(folder)

    def once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a stage: read if it was finished before, otherwise made and kept."""
        file = self.folder / f"{name}.json"
        if not file.exists():
            _files.write_json(file, make())
        return _files.read_json(file)


def fingerprint(graph: TemporalGraph, options: dict[str, Any]) -> str:
    """A short text that is the same for the same graph and options."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
    for kind, part in graph.nodes.items():
        digest.update(f"{kind} {part.num_nodes}".encode())
        for values in (part.x, part.y, part.time):
            _add(digest, values)
    for triple, relation in graph.relations.items():
        digest.update(repr(triple).encode())
        _add(digest, relation.edge_index)
        _add(digest, relation.weight)
    return digest.hexdigest()


def _add(digest: Any, values: np.ndarray | None) -> None:
    if values is None:
        digest.update(b"none")
        return
    digest.update(f"{values.dtype.str}{values.shape}".encode())
    rows = max(1, (1 << 24) // max(1, values[:1].nbytes))
    for start in range(0, len(values), rows):
        digest.update(np.ascontiguousarray(values[start : start + rows]).data)
