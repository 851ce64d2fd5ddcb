"""The audit catches trainers that look where they must not, and clears those that do not."""

import numpy as np
import pytest
import torch

import impact_gnn as ig

CUTOFF = 4


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=200, num_times=5, num_labels=3, mean_degree=10, seed=0)


def trained(graph, rows, epochs=20):
    """Softmax regression on the given rows; predicts the targets."""
    x, y = torch.tensor(np.array(graph.x)).float(), torch.tensor(np.array(graph.y))
    torch.manual_seed(0)
    model = torch.nn.Linear(x.shape[1], graph.num_labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model(x[graph.time >= CUTOFF]).detach()


def test_an_honest_trainer_is_cleared(graph):
    outcome = ig.audit_leakage(lambda g: trained(g, np.flatnonzero(g.time < CUTOFF)), graph, cutoff=CUTOFF)
    assert not outcome.leaked
    assert outcome.changed == 0
    assert str(outcome) == "No leak: predictions are identical with scrambled target labels."


def test_a_loss_indexed_into_the_wrong_rows_is_caught(graph):
    def leaky(g):
        """Positions drawn among the training rows are used to index the whole graph, targets first."""
        order = np.argsort(-g.time, kind="stable")
        positions = np.arange((g.time < CUTOFF).sum())[::2]
        return trained(g, order[positions])

    outcome = ig.audit_leakage(leaky, graph, cutoff=CUTOFF)
    assert outcome.leaked
    assert outcome.changed > 0.5
    assert "labels at or after the cutoff reach the trainer" in str(outcome)


def test_an_unrepeatable_trainer_is_not_accused(graph):
    rng = np.random.default_rng(0)
    outcome = ig.audit_leakage(lambda g: rng.integers(0, 3, 40), graph, cutoff=CUTOFF)
    assert not outcome.leaked
    assert "not repeatable" in str(outcome)


def test_our_own_pipeline_is_cleared(graph):
    made = ig.Pipeline(method="pmp+center+labels", cutoff=CUTOFF, epochs=3, hidden=8)
    assert not ig.audit_leakage(lambda g: made.fit(g).predict_proba(g), graph, cutoff=CUTOFF).leaked


def test_refusals(graph):
    with pytest.raises(ig.InputError, match="nothing that could leak"):
        ig.audit_leakage(lambda g: np.zeros(1), graph.masked(CUTOFF), cutoff=CUTOFF)
    with pytest.raises(ig.InputError, match="returned no predictions"):
        ig.audit_leakage(lambda g: np.zeros(0), graph, cutoff=CUTOFF)
