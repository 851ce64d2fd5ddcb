"""Distances between messages of two periods: bounds (Theorems 4.3 to 4.5) and measurements."""

from impact_gnn.bounds.measure import Comparison, Shift, compare, shift, sliced_w1, w1
from impact_gnn.bounds.risk import RiskBound, risk_bound
from impact_gnn.bounds.theory import (
    Contraction,
    corollary,
    equal_means,
    layer_contraction,
    theorem_4_3,
    theorem_4_4,
)

__all__ = [
    "Comparison",
    "Contraction",
    "RiskBound",
    "Shift",
    "compare",
    "corollary",
    "equal_means",
    "layer_contraction",
    "risk_bound",
    "shift",
    "sliced_w1",
    "theorem_4_3",
    "theorem_4_4",
    "w1",
]
