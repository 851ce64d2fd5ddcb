"""A GNN of your own: what time weights do for it in the past, and whether any label of the future reaches it."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

import impact_gnn as ig


class MyGNN(nn.Module):
    """Two graph convolutions; `edge_weight` brings the time weights."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first, self.last = GCNConv(in_channels, 16), GCNConv(16, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = torch.relu(self.first(x, edge_index, edge_weight))
        return self.last(x, edge_index, edge_weight)


def main() -> None:
    torch.set_num_threads(1)  # the graph is small: threads would only wait for each other
    graph = ig.tsbm(num_nodes=300, num_times=8, num_labels=3, feature_std=1, decay=0.6, seed=0)
    pipeline = ig.Pipeline(MyGNN, epochs=15)
    tested = ig.backtest(
        graph, candidates=["plain", "pmp", "genpmp"], folds=2, cutoff=7, pipeline=pipeline
    )
    print(tested)

    def fit_predict(seen: ig.TemporalGraph) -> object:
        return ig.Pipeline(MyGNN, "pmp", cutoff=7, epochs=3).fit(seen).predict_proba(seen)

    print(ig.audit_leakage(fit_predict, graph, cutoff=7, draws=5))


if __name__ == "__main__":
    main()
