"""The report of a run: one HTML file that needs nothing else, for a person to read."""

from impact_gnn.report.page import write_report
from impact_gnn.report.summary import RunSummary, read_summary, write_summary

__all__ = ["RunSummary", "read_summary", "write_report", "write_summary"]
