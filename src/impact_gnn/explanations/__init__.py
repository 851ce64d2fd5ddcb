"""Explanations of predictions: which inputs, neighbours and periods a probability comes from."""

from impact_gnn.explanations.attribution import Explainer, explain
from impact_gnn.explanations.explanation import NodeExplanation

__all__ = ["Explainer", "NodeExplanation", "explain"]
