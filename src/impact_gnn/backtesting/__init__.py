"""What pays on this graph: folds of its past, candidates tried on them, the choice and what it is worth."""

from impact_gnn.backtesting.candidates import Advice, Advised, advise
from impact_gnn.backtesting.effort import EFFORTS
from impact_gnn.backtesting.folds import Fold, Window, fold_of, windows
from impact_gnn.backtesting.results import (
    BASELINE,
    BacktestResult,
    CandidateResult,
    FoldCheck,
    HorizonScore,
    PeriodScore,
    Selection,
    SelectionReason,
    Status,
)
from impact_gnn.backtesting.scores import Scores, Unit
from impact_gnn.backtesting.search import backtest, with_candidate

__all__ = [
    "BASELINE",
    "EFFORTS",
    "Advice",
    "Advised",
    "BacktestResult",
    "CandidateResult",
    "Fold",
    "FoldCheck",
    "HorizonScore",
    "PeriodScore",
    "Scores",
    "Selection",
    "SelectionReason",
    "Status",
    "Unit",
    "Window",
    "advise",
    "backtest",
    "fold_of",
    "windows",
    "with_candidate",
]
