"""Tensors and a few plain values in one safetensors file, whole or absent; nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from impact_gnn import _files
from impact_gnn.checks import InputError

NOTE = "impact_gnn"
"""Under which name the file's header holds the plain values, as JSON."""


def save(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> None:
    """Writes tensors by name and a JSON-able note, atomically: one file, so that the two cannot disagree."""
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with _files.atomic_file(path) as temporary:
        save_file(whole, temporary, metadata={NOTE: json.dumps(note)})


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save` wrote, or an `InputError` that names the file."""
    try:
        with safe_open(path, framework="pt") as file:
            note = json.loads((file.metadata() or {})[NOTE])
            return {name: file.get_tensor(name) for name in file.keys()}, note  # noqa: SIM118 - it is no mapping
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is not a checkpoint of impact-gnn ({reason}); delete it or name another.") from None


def flat_optimizer(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's moments as tensors named number/field; its options are the caller's to repeat."""
    state = optimizer.state_dict()["state"]
    return {f"{number}/{field}": value for number, part in state.items() for field, value in part.items()}


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Puts back what `flat_optimizer` took out."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, field = name.split("/")
        state.setdefault(int(number), {})[field] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose name begins with prefix/, without it."""
    start = f"{prefix}/"
    return {name[len(start) :]: value for name, value in tensors.items() if name.startswith(start)}


def named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with prefix/ before their names; the inverse of `under`."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}
