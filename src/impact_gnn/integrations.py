"""A run in an experiment tracker: MLflow, or Weights & Biases; neither is needed for anything else."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from impact_gnn._codec import encode
from impact_gnn.checks import InputError
from impact_gnn.report.summary import RunSummary

# no predictions: they may not be for everybody
FILES = (
    "summary.json",
    "report.html",
    "model/README.md",
)


def flat(summary: RunSummary) -> tuple[dict[str, Any], dict[str, float]]:
    """What a run was told and chose, as parameters by name; and what is known of its worth, as numbers by name."""
    params = encode(summary.options) | {
        "choice": str(summary.choice),
        "impact_gnn": summary.versions["impact_gnn"],
    }
    tested, expected = summary.backtest, summary.predicted.accuracy
    numbers = {
        f"backtest.{name}": tested.mean_check(name)
        for name in ("score", "plain_score", "accuracy", "error")
    }
    for name, one in (("gain", tested.selection.gain), ("expected_accuracy", expected)):
        numbers |= {f"{name}.{part}": getattr(one, part, None) for part in ("value", "low", "high")}
    numbers |= {"predicted": summary.predicted.count, "seconds": summary.cost.seconds}
    return params, {name: float(value) for name, value in numbers.items() if value is not None}


def log_to_mlflow(summary: RunSummary, out: str | Path | None = None) -> None:
    """Logs a run to MLflow's active run, or a new one; with `out`, its directory, the summary, report and card too."""
    mlflow, (params, metrics) = _tracker("mlflow"), flat(summary)
    mlflow.log_params(params)
    mlflow.log_metrics(metrics)
    if out is not None:
        for name in FILES:
            mlflow.log_artifact(str(Path(out) / name))


def log_to_wandb(summary: RunSummary, out: str | Path | None = None) -> None:
    """Logs a run to the active run of Weights & Biases, or a new one; `out` as in `log_to_mlflow`."""
    wandb, (params, metrics) = _tracker("wandb"), flat(summary)
    run = wandb.run or wandb.init()
    run.config.update(params)
    run.log(metrics)
    if out is not None:
        for name in FILES:
            run.save(str(Path(out) / name), base_path=str(out), policy="now")


def _tracker(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{name} is not installed; run `pip install {name}` first.") from None
