"""`python benchmarks/sehgnn_epoch.py [--steps 12]`: what an epoch of the SeHGNN head costs at ogbn-mag's size.

Hops of the right shapes with random numbers (time does not depend on the values): 736,389 papers, the features and four
feature metapaths of 128 columns, three label metapaths of 349. Some steps of the real training loop are timed; the
epoch is their mean times the number of steps. Features and labels apart, because SeHGNN is used with and without.
"""

import argparse
import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from impact_gnn.data.hetero_tsbm import MAG
from impact_gnn.nn import HopTask, SeHGNN

TRAIN = 629_571


def steps(model: SeHGNN, task: HopTask, labels: torch.Tensor, batch: int, count: int) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    taken = []
    for _ in range(count + 1):  # the first one allocates
        begun = time.perf_counter()
        rows = torch.randint(0, TRAIN, (batch,))
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(task.logits(model, rows), labels[rows]).backward()
        optimizer.step()
        taken.append(time.perf_counter() - begun)
    return float(np.mean(taken[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--hidden", type=int, default=512)
    given = parser.parse_args()
    papers, classes, width = MAG["num_papers"], MAG["num_labels"], MAG["num_features"]
    rng = np.random.default_rng(0)
    hops = [rng.random((papers, width), dtype=np.float32) for _ in range(5)]
    labels = torch.from_numpy(rng.integers(0, classes, papers))
    for name, label_hops in (
        ("features", []),
        ("features and labels", [rng.random((papers, classes), dtype=np.float32) for _ in range(3)]),
    ):
        task = HopTask(hops, label_hops)
        model = SeHGNN(task.in_channels, classes, given.hidden, label_channels=task.label_channels).train()
        each = steps(model, task, labels, given.batch, given.steps)
        whole = each * -(-TRAIN // given.batch)
        print(f"{name}: {each:.2f} s a step of {given.batch:,} rows, hidden {given.hidden}; an epoch {whole:.0f} s")


if __name__ == "__main__":
    main()
