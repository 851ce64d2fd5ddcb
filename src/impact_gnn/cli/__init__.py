"""The command `impact`: strings become objects here, bad input becomes one sentence and exit code 2."""

from impact_gnn.cli.main import app, main

__all__ = ["app", "main"]
