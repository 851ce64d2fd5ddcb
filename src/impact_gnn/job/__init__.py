"""The main job: check, diagnose, back-test, fit, predict, explain - in stages that survive being cut off."""

from impact_gnn.job.run import run
from impact_gnn.report.summary import RunOptions, RunSummary, read_summary, write_summary

__all__ = ["RunOptions", "RunSummary", "read_summary", "run", "write_summary"]
