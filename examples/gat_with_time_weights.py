"""GATConv takes no edge weight: three ways to hand it the weights of PMP, and which of them are exact."""

import warnings

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GAT

from impact_gnn.transforms import PMP, DeliveryWarning, check_delivery, time_attention


def temporal_graph(num_nodes: int = 500) -> Data:
    """A random graph in time."""
    torch.manual_seed(0)
    time = torch.randint(2010, 2020, (num_nodes,))
    edge_index = torch.randint(0, num_nodes, (2, 8 * num_nodes))
    return Data(
        x=torch.randn(num_nodes, 16),
        time=time,
        edge_index=edge_index[:, edge_index[0] != edge_index[1]],
    )


def warned(model: torch.nn.Module, data: Data) -> None:
    """Prints what check_delivery warns about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeliveryWarning)
        check_delivery(model, data)
    for warning in caught:
        print("  warning:", warning.message)
    if not caught:
        print("  no warning")


def main() -> None:
    data = temporal_graph()
    torch.manual_seed(1)
    model = GAT(16, 8, num_layers=2, out_channels=3, heads=2).eval()

    print("PMP() writes edge_weight, which no GAT layer reads:")
    warned(model, PMP()(data))

    print("PMP(deliver='duplicate') repeats edges; every layer understands that:")
    copies = PMP(deliver="duplicate")(data)
    warned(model, copies)
    by_copies = model(copies.x, copies.edge_index)

    print("PMP(deliver='attention') writes log-weights, which these layers were not built for:")
    biased = PMP(deliver="attention")(data)
    warned(model, biased)

    print("time_attention(model) makes them take the log-weight, with the same parameters:")
    time_attention(model)
    warned(model, biased)
    by_attention = model(biased.x, biased.edge_index, edge_attr=biased.edge_attr)
    print(f"  largest difference to duplicates {(by_attention - by_copies).abs().max().item():.1e}")
    print(f"  with {biased.num_edges} edges instead of {copies.num_edges}")


if __name__ == "__main__":
    main()
