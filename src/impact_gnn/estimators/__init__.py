"""Estimators: a method, its inputs and a model as one `Pipeline`; several as one `Ensemble`."""

from impact_gnn.estimators.calibration import Calibration
from impact_gnn.estimators.candidate import Candidate
from impact_gnn.estimators.ensemble import Ensemble, EnsembleSpec, Member
from impact_gnn.estimators.head import HeadOptions, Shape
from impact_gnn.estimators.inputs import Inputs
from impact_gnn.estimators.model_files import FitSettings, Fitted
from impact_gnn.estimators.model_table import (
    MODELS,
    ModelSpec,
    reads_graph,
    register_model,
    spec_of,
)
from impact_gnn.estimators.network import Network, NetworkHead
from impact_gnn.estimators.pipeline import Pipeline
from impact_gnn.estimators.user_model import Model, Own, model_name
from impact_gnn.methods import Method

__all__ = [
    "MODELS",
    "Calibration",
    "Candidate",
    "Ensemble",
    "EnsembleSpec",
    "FitSettings",
    "Fitted",
    "HeadOptions",
    "Inputs",
    "Member",
    "Method",
    "Model",
    "ModelSpec",
    "Network",
    "NetworkHead",
    "Own",
    "Pipeline",
    "Shape",
    "model_name",
    "reads_graph",
    "register_model",
    "spec_of",
]
