"""What pays on this graph: folds of its past, candidates tried on them, the choice and what it is worth."""

from impact_gnn.backtesting.candidates import Advice, Advised, advise
from impact_gnn.backtesting.folds import Fold, Window, fold_of, windows
from impact_gnn.backtesting.outcome import (
    PLAIN,
    Backtest,
    Decision,
    FoldCheck,
    Lag,
    PeriodScore,
    Reason,
    Status,
    Trial,
)
from impact_gnn.backtesting.race import backtest, varied
from impact_gnn.backtesting.scores import Scores, Unit
from impact_gnn.backtesting.work import EFFORTS

__all__ = [
    "EFFORTS",
    "PLAIN",
    "Advice",
    "Advised",
    "Backtest",
    "Decision",
    "Fold",
    "FoldCheck",
    "Lag",
    "PeriodScore",
    "Reason",
    "Scores",
    "Status",
    "Trial",
    "Unit",
    "Window",
    "advise",
    "backtest",
    "fold_of",
    "varied",
    "windows",
]
