"""GraphSAGE takes no edge weight: what the check says, and how repeated edges hand it the weights of PMP."""

import warnings

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from impact_gnn.transforms import PMP, ChronologicalSplit, DeliveryWarning, check_delivery


def temporal_graph(seed: int, num_nodes: int = 300, num_labels: int = 4) -> Data:
    """Like connects to like, and the more the closer in time; features are noisy."""
    torch.manual_seed(seed)
    time, y = torch.randint(0, 10, (num_nodes,)), torch.randint(0, num_labels, (num_nodes,))
    chance = torch.where(y[:, None] == y, 0.2, 0.08) * 0.6 ** (time[:, None] - time).abs()
    half = (torch.rand(num_nodes, num_nodes) < chance).triu(1)
    x = torch.randn(num_labels, 5)[y] + 3 * torch.randn(num_nodes, 5)
    return Data(x=x, y=y, time=time, edge_index=(half | half.T).nonzero().T.contiguous())


def accuracy(data: Data, seed: int) -> float:
    """Trains on the past and scores the recent."""
    torch.manual_seed(seed)
    model = GraphSAGE(5, 16, num_layers=2, out_channels=4, aggr="mean")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(30):
        optimizer.zero_grad()
        score = model(data.x, data.edge_index)[data.train_mask]
        torch.nn.functional.cross_entropy(score, data.y[data.train_mask]).backward()
        optimizer.step()
    guess = model(data.x, data.edge_index).argmax(1)
    return float((guess == data.y)[data.test_mask].float().mean())


def main() -> None:
    torch.set_num_threads(1)  # the graph is small: threads would only wait for each other
    model = GraphSAGE(5, 16, num_layers=2, out_channels=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeliveryWarning)
        check_delivery(model, PMP()(temporal_graph(0)))
    print(*(f"warning: {warning.message}" for warning in caught), sep="\n")

    by_copies = PMP(deliver="duplicate")
    found = check_delivery(model, by_copies(temporal_graph(0)), lambda d: model(d.x, d.edge_index))
    print(f"{by_copies} leaves {len(found)} findings")

    differences = []
    for seed in range(3):
        data = ChronologicalSplit(cutoff=8)(temporal_graph(seed))
        plain, weighted = accuracy(data, seed), accuracy(by_copies(data), seed)
        differences.append(weighted - plain)
        print(f"graph {seed}: plain {plain:.3f}, PMP {weighted:.3f}")
    gain = torch.tensor(differences)
    print(
        f"paired difference {gain.mean():+.3f} ± {gain.std() / len(gain) ** 0.5:.3f}: too few graphs to tell"
    )


if __name__ == "__main__":
    main()
