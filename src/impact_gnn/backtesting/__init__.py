"""Walk-forward back-testing: which correction would have paid on the user's own history, and how sure is that."""

from impact_gnn.backtesting.folds import Fold, fold_at, fold_times
from impact_gnn.backtesting.scores import Scores, Unit
from impact_gnn.backtesting.walk import CANDIDATES, Backtest, Row, backtest

__all__ = ["CANDIDATES", "Backtest", "Fold", "Row", "Scores", "Unit", "backtest", "fold_at", "fold_times"]
