"""Distances between messages of two periods, and a bound on the risk of later messages."""

from impact_gnn.bounds.measure import Comparison, Shift, compare, shift
from impact_gnn.bounds.risk import RiskBound, risk_bound

__all__ = ["Comparison", "RiskBound", "Shift", "compare", "risk_bound", "shift"]
