"""Logs runs to MLflow or Weights & Biases, which are optional dependencies."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from impact_gnn._codec import encode
from impact_gnn.checks import InputError
from impact_gnn.report.summary import RunSummary

# not the predictions, which may be confidential
FILES = ("summary.json", "report.html", "model/README.md")


def flat(summary: RunSummary) -> tuple[dict[str, Any], dict[str, float]]:
    """Options and selection of a run as parameters by name, and its scores as metrics by name."""
    params = encode(summary.options) | {
        "choice": str(summary.choice),
        "impact_gnn": summary.versions["impact_gnn"],
    }
    result = summary.backtest
    predictions = summary.prediction_summary
    metrics = {
        "predicted": float(predictions.count),
        "seconds": summary.cost.seconds,
    }
    for name in ("score", "plain_score", "accuracy", "error"):
        mean = result.mean_check(name)
        if mean is not None:
            metrics[f"backtest.{name}"] = mean
    estimates = {"gain": result.selection.gain, "expected_accuracy": predictions.accuracy}
    for name, estimate in estimates.items():
        for field in ("value", "low", "high"):
            if estimate is not None:
                metrics[f"{name}.{field}"] = getattr(estimate, field)
    return params, metrics


def log_to_mlflow(summary: RunSummary, out: str | Path | None = None) -> None:
    """Log a run to the active run of MLflow, or a new one; `out` adds the files in `FILES`."""
    mlflow = _import_tracker("mlflow")
    params, metrics = flat(summary)
    mlflow.log_params(params)
    mlflow.log_metrics(metrics)
    if out is not None:
        for name in FILES:
            mlflow.log_artifact(str(Path(out) / name))


def log_to_wandb(summary: RunSummary, out: str | Path | None = None) -> None:
    """Log a run to the active run of Weights & Biases; `out` as in `log_to_mlflow`."""
    wandb = _import_tracker("wandb")
    params, metrics = flat(summary)
    run = wandb.run or wandb.init()
    run.config.update(params)
    run.log(metrics)
    if out is not None:
        for name in FILES:
            run.save(str(Path(out) / name), base_path=str(out), policy="now")


def _import_tracker(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{name} is not installed; run `pip install {name}` first.") from None
