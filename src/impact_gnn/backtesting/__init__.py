"""Walk-forward back-testing: which correction would have paid on the user's own history, and how sure is that."""

from impact_gnn.backtesting.candidates import CANDIDATES, Advice, Candidate, advise
from impact_gnn.backtesting.outcome import Backtest, Decision, Reason, Status, Trial
from impact_gnn.backtesting.race import backtest, varied
from impact_gnn.backtesting.scores import Scores, Unit

__all__ = [
    "CANDIDATES", "Advice", "Backtest", "Candidate", "Decision", "Reason", "Scores", "Status", "Trial", "Unit",
    "advise", "backtest", "varied",
]  # fmt: skip
