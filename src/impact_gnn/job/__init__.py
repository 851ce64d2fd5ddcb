"""The main job: check, diagnose, back-test, fit, predict, explain - in stages that survive being cut off."""

from impact_gnn.job.run import Options, run

__all__ = ["Options", "run"]
