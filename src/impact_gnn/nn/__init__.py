"""Layers and models for PyTorch Geometric that know about time."""

from impact_gnn.nn.alignment import PNY, JJNorm, TimeCenter, TimeStandardize

__all__ = ["PNY", "JJNorm", "TimeCenter", "TimeStandardize"]
