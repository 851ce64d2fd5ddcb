"""The main job in stages that resume: check, diagnose, back-test, fit, predict, explain."""

from impact_gnn.job.run import run

__all__ = ["run"]
