"""The main job in stages that resume: check, diagnose, back-test, fit, predict, explain."""

from impact_gnn.job.run import run
from impact_gnn.report.summary import RunOptions, RunSummary, read_summary, write_summary

__all__ = ["RunOptions", "RunSummary", "read_summary", "run", "write_summary"]
