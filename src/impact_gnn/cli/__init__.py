"""The command `impact`: parses strings; bad input ends with one sentence and exit code 2."""

from impact_gnn.cli.main import app, main

__all__ = ["app", "main"]
