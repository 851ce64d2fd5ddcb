"""Time weights in a LightningModule: made once, before training, they are an attribute of the edges."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn.models import GCN

import impact_gnn as ig
from impact_gnn.transforms import PMP, ChronologicalSplit

try:
    import lightning
except ImportError:
    raise SystemExit(print("This example needs `pip install lightning`.")) from None


class Classifier(lightning.LightningModule):
    """Learns from the past and is scored on the recent nodes."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.model = GCN(in_channels, 16, num_layers=2, out_channels=out_channels)

    def training_step(self, data: Data) -> Tensor:
        score = self.model(data.x, data.edge_index, data.edge_weight)[data.train_mask]
        return cross_entropy(score, data.y[data.train_mask])

    def test_step(self, data: Data) -> None:
        guess = self.model(data.x, data.edge_index, data.edge_weight).argmax(1)
        self.log("accuracy", (guess == data.y)[data.test_mask].float().mean(), batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01, weight_decay=5e-4)


def main() -> None:
    lightning.seed_everything(0)
    graph = ig.tsbm(num_nodes=400, num_times=8, num_labels=3, feature_std=1, seed=0)
    data = PMP()(ChronologicalSplit(cutoff=7)(ig.to_pyg(graph)))
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=20, accelerator="cpu", log_every_n_steps=1, **quiet)
    model, loader = Classifier(data.num_features, graph.num_labels), DataLoader([data])
    trainer.fit(model, loader)
    print(trainer.test(model, loader, verbose=False))


if __name__ == "__main__":
    main()
