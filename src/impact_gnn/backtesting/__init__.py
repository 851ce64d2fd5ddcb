"""Back-tests candidates on folds of the past, and selects an ensemble with an accuracy forecast."""

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
    SimpleResult,
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
    "SimpleResult",
    "Status",
    "Unit",
    "Window",
    "advise",
    "backtest",
    "fold_of",
    "windows",
    "with_candidate",
]
