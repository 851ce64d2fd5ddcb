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
from impact_gnn.checks import InputError, one_line

NOTE = "impact_gnn"  # under which name the file's header holds the plain values, as JSON

Parts = dict[str, dict[str, Tensor]]  # by part (model, optimizer, ...) and name; in the file part/name


def save(path: Path, parts: Mapping[str, Mapping[str, Tensor]], note: Mapping[str, Any]) -> None:
    """Writes tensors and a JSON-able note, atomically: one file, so that the two cannot disagree."""
    flat = {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
    with _files.atomic_file(path) as temporary:
        whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in flat.items()}
        save_file(whole, temporary, metadata={NOTE: json.dumps(note)})


def load(path: Path) -> tuple[Parts, dict[str, Any]]:
    """What `save` wrote, or an `InputError` that names the file."""
    parts: Parts = {}
    try:
        with safe_open(path, framework="pt") as file:
            note = json.loads((file.metadata() or {})[NOTE])
            for key in file.keys():  # noqa: SIM118 - it is no mapping
                part, name = key.split("/", 1)
                parts.setdefault(part, {})[name] = file.get_tensor(key)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        reason = one_line(error)
        raise InputError(f"{path} is not a checkpoint of impact-gnn ({reason}); delete it or name another.") from None
    return parts, note


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
