"""Raw feature columns, and the encoder that turns them into numbers without looking ahead."""

from impact_gnn.encoding.columns import Columns
from impact_gnn.encoding.encoder import Encoder
from impact_gnn.encoding.kinds import KINDS, guess_kind

__all__ = ["KINDS", "Columns", "Encoder", "guess_kind"]
