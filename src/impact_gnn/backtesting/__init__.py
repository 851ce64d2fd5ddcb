"""Walk-forward back-testing: which correction would have paid on the user's own history, and how sure is that."""

from impact_gnn.backtesting.candidates import CANDIDATES, Advice, Candidate, advise
from impact_gnn.backtesting.folds import Fold, fold_at, fold_times
from impact_gnn.backtesting.outcome import Backtest, Decision, Reason, Status, Trial
from impact_gnn.backtesting.race import backtest, varied
from impact_gnn.backtesting.scores import Scores, Unit

__all__ = [
    "CANDIDATES",
    "Advice",
    "Backtest",
    "Candidate",
    "Decision",
    "Fold",
    "Reason",
    "Scores",
    "Status",
    "Trial",
    "Unit",
    "advise",
    "backtest",
    "fold_at",
    "fold_times",
    "varied",
]
