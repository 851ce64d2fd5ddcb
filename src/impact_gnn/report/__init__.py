"""The report of a run: one HTML file that needs nothing else, for a person to read."""

from impact_gnn.report.render import write_report

__all__ = ["write_report"]
