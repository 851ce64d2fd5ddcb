"""A whole pipeline: method, inputs, model and training, fitted, saved and loaded as one; and several as one."""

from impact_gnn.heads import MODELS
from impact_gnn.methods import Method
from impact_gnn.pipeline.attribution import Explainer, explain
from impact_gnn.pipeline.calibration import Calibration
from impact_gnn.pipeline.candidate import Candidate
from impact_gnn.pipeline.ensemble import Ensemble, EnsembleSpec, Member
from impact_gnn.pipeline.explanation import NodeExplanation
from impact_gnn.pipeline.inputs import Inputs
from impact_gnn.pipeline.model_files import Fitted
from impact_gnn.pipeline.pipeline import STAGES, Pipeline

__all__ = [
    "MODELS",
    "STAGES",
    "Calibration",
    "Candidate",
    "Ensemble",
    "EnsembleSpec",
    "Explainer",
    "Fitted",
    "Inputs",
    "Member",
    "Method",
    "NodeExplanation",
    "Pipeline",
    "explain",
]
