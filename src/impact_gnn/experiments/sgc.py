"""SGC: two hops without anything learned, then an MLP; all columns of several graphs are trained together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from impact_gnn.experiments.batched import classify
from impact_gnn.experiments.columns import Column, alignment, label_features
from impact_gnn.experiments.sample import Sample
from impact_gnn.experiments.setting import Options, Protocol
from impact_gnn.propagation.hops import operator
from impact_gnn.propagation.operator import Operator

HOPS = 2
EVERY_HOP = ("pny", "pny-oracle")
"""PNY speaks of one aggregation and is applied to each; the others to the last message, which is linear in x."""


def predict(
    samples: Sequence[Sample], columns: Sequence[Column], protocol: Protocol, options: Options
) -> dict[str, list[np.ndarray]]:
    """For every column the predicted labels of the nodes `test` of every graph."""
    inputs: dict[str, list[np.ndarray]] = {column.name: [] for column in columns}
    for sample in samples:
        for name, values in features(sample, columns, protocol).items():
            inputs[name].append(values)
    found: dict[str, list[np.ndarray]] = {}
    widths = {column.name: inputs[column.name][0].shape[1] for column in columns}
    for width in sorted(set(widths.values())):  # a batch holds matrices of one width
        names = [name for name in widths if widths[name] == width]
        problems = [(name, b) for name in names for b in range(len(samples))]
        logits = classify(
            [inputs[name][b][samples[b].train] for name, b in problems],
            [samples[b].known() for _, b in problems],
            [inputs[name][b][samples[b].test] for name, b in problems],
            [samples[b].seed for _, b in problems],
            num_labels=samples[0].view.num_labels, options=options, sigmoid=protocol.sigmoid,
        )  # fmt: skip
        for name in names:
            found[name] = [logits[k].argmax(1) for k, problem in enumerate(problems) if problem[0] == name]
    return found


def features(sample: Sample, columns: Sequence[Column], protocol: Protocol) -> dict[str, np.ndarray]:
    """What the MLP of every column reads, [N, f]: the aligned message of the last hop, and label hops."""
    operators: dict[str, Operator] = {}
    hops: dict[str, list[np.ndarray]] = {}
    out = {}
    for column in columns:
        if column.weighting not in operators:
            made = operator(
                sample.view, weighting=column.weighting, norm=protocol.sgc_norm, self_loop=protocol.self_loop
            )
            operators[column.weighting] = made
            hops[column.weighting] = _hops(made, sample.x)
        message = _aligned(column, sample, operators[column.weighting], hops[column.weighting])
        if column.label_hop:
            message = np.hstack([message, label_features(column, sample)])
        out[column.name] = message
    return out


def _hops(made: Operator, x: np.ndarray) -> list[np.ndarray]:
    found = [x]
    for _ in range(HOPS):
        found.append(made.apply(found[-1]))
    return found


def _aligned(column: Column, sample: Sample, made: Operator, hops: list[np.ndarray]) -> np.ndarray:
    align = alignment(column, sample, made.table)
    if align is None:
        return hops[-1]
    if not set(column.align) & set(EVERY_HOP):
        return align(torch.from_numpy(hops[-1]), torch.from_numpy(hops[-2])).numpy()
    message = torch.from_numpy(np.array(hops[0]))
    for _ in range(HOPS):
        message = align(torch.from_numpy(made.apply(message.numpy())), message)
    return message.numpy()
