"""A whole pipeline: method, inputs, model and training, fitted, saved and loaded as one."""

from impact_gnn.pipeline.inputs import Inputs
from impact_gnn.pipeline.method import Method
from impact_gnn.pipeline.pipeline import MODELS, Fitted, Pipeline

__all__ = ["MODELS", "Fitted", "Inputs", "Method", "Pipeline"]
