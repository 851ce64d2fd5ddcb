"""The audit detects trainers that leak target labels and passes those that do not."""

import json

import numpy as np
import pytest
import torch

import impact_gnn as ig
from commands import here
from impact_gnn.audit import LEVEL, scrambled

CUTOFF, CLASSES, TARGETS = 4, 3, 39


@pytest.fixture(scope="module")
def graph():
    return ig.tsbm(num_nodes=200, num_times=5, num_labels=CLASSES, mean_degree=10, seed=0)


@pytest.fixture(scope="module")
def larger():
    return ig.tsbm(num_nodes=1000, num_times=5, num_labels=CLASSES, mean_degree=3, seed=0)


def trained(graph, rows, epochs=20):
    """Softmax regression on some rows; predicts the targets."""
    x, y = torch.tensor(np.array(graph.x)).float(), torch.tensor(np.array(graph.y))
    torch.manual_seed(0)
    model = torch.nn.Linear(x.shape[1], graph.num_labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model(x[graph.time >= CUTOFF]).detach()


def cheap(seed, *, noise=0.1, leaked=0.0, models=1):
    """A trainer with fixed predictions, except for noisy rows that change at random and rows that
    leaked.

    Of several models, which agree about most rows, it returns the one that is best on the targets.
    """
    rng = np.random.default_rng(seed)

    def fit_predict(g):
        truth = g.y[g.time >= CUTOFF]
        n = len(truth)
        fixed = np.random.default_rng(seed)
        guesses = np.where(
            fixed.random((models, n)) < 0.15,
            fixed.integers(0, CLASSES, (models, n)),
            np.arange(n) % 3,
        )
        best = guesses[np.argmax((guesses == truth).mean(1))]
        best = np.where(fixed.random(n) < leaked, truth, best)
        return np.where(rng.random(n) < noise, rng.integers(0, CLASSES, n), best)

    return fit_predict


def test_labels_are_permuted_within_the_targets(graph):
    other, target = scrambled(graph, CUTOFF), graph.time >= CUTOFF
    assert np.array_equal(other.y[~target], graph.y[~target])
    assert np.array_equal(np.bincount(other.y[target]), np.bincount(graph.y[target]))
    assert 0.3 < (other.y[target] != graph.y[target]).mean() < 1
    assert not np.array_equal(scrambled(graph, CUTOFF, 1).y, other.y)


def test_a_trainer_without_leaks_passes(graph):
    outcome = ig.audit_leakage(
        lambda g: trained(g, np.flatnonzero(g.time < CUTOFF)), graph, cutoff=CUTOFF
    )
    assert not outcome.leaked
    assert (outcome.changed, outcome.control, outcome.p) == (0, 0, 1)
    expected = (
        "p = 1; 8 permutations of the target labels, each run twice: 0.0% of 39 predictions "
        "change between permutations"
    )
    assert str(outcome).startswith(
        f"No leak found ({expected}, 0.0% between identical runs). A leak of "
    )
    assert str(outcome).endswith("% of the target rows would be detected with 90% probability.")


def test_a_loss_indexed_into_the_wrong_rows_is_caught(graph):
    def leaky(g):
        """Positions among the training rows index the whole graph, targets first."""
        order = np.argsort(-g.time, kind="stable")
        positions = np.arange((g.time < CUTOFF).sum())[::2]
        return trained(g, order[positions])

    outcome = ig.audit_leakage(leaky, graph, cutoff=CUTOFF)
    assert outcome.leaked
    assert outcome.changed > 0.5
    assert "labels from the cutoff on reach the trainer" in str(outcome)


@pytest.mark.parametrize(
    "trainer",
    [{"leaked": 0.05}, {"leaked": 0.05, "noise": 0}, {"models": 4}, {"models": 4, "noise": 0}],
    ids=str,
)
def test_leaks_are_caught(trainer, larger):
    """5 % of the target rows under noise, and a model chosen by the accuracy on targets, where no
    row leaks.
    """
    detected = [
        ig.audit_leakage(cheap(s, **trainer), larger, cutoff=CUTOFF, seed=100 * s).leaked
        for s in range(10)
    ]
    assert sum(detected) >= 9


def test_the_stated_power_is_reached(larger):
    """A leak with a stated power of 90 % is detected about as often; a third of it is not."""
    power = ig.audit_leakage(cheap(0), larger, cutoff=CUTOFF).findable
    assert 0.02 < power < 0.05
    detected = [
        ig.audit_leakage(cheap(s, leaked=power), larger, cutoff=CUTOFF, seed=9 * s).leaked
        for s in range(20)
    ]
    assert sum(detected) >= 14
    detected = [
        ig.audit_leakage(cheap(s, leaked=power / 4), larger, cutoff=CUTOFF, seed=9 * s).leaked
        for s in range(20)
    ]
    assert sum(detected) <= 10
    more = ig.audit_leakage(cheap(0), larger, cutoff=CUTOFF, draws=16).findable
    noisy = ig.audit_leakage(cheap(0, noise=0.5), larger, cutoff=CUTOFF).findable
    assert more < power < noisy


def test_a_noisy_trainer_is_not_accused(graph):
    """Not more often than is stated, whether it returns labels or probabilities."""
    alarms = 0
    for seed in range(200):
        trainer = cheap(seed, noise=0.3)
        audited = (lambda g, t=trainer: np.eye(CLASSES)[t(g)]) if seed % 2 else trainer
        alarms += ig.audit_leakage(audited, graph, cutoff=CUTOFF, seed=100 * seed, draws=5).leaked
    assert alarms <= 200 * LEVEL + 3  # two are expected at most; more than five, once in 60 times


def test_our_pipeline_passes(graph):
    pipeline = ig.Pipeline(method="pmp+center+labels", cutoff=CUTOFF, epochs=3, hidden=8)
    assert not ig.audit_leakage(
        lambda g: pipeline.fit(g).predict_proba(g), graph, cutoff=CUTOFF, draws=5
    ).leaked


def test_names_scores_and_all_nodes_may_be_returned(graph):
    named = ig.TemporalGraph(
        y=graph.y, time=graph.time, edge_index=graph.edge_index, label_names=["a", "b", "c"]
    )
    outcome = ig.audit_leakage(lambda g: np.array(g.label_names)[g.y], named, cutoff=CUTOFF)
    assert outcome.leaked
    assert outcome.findable is not None
    scores = ig.audit_leakage(lambda g: g.y[g.time >= CUTOFF] + 0.5, graph, cutoff=CUTOFF)
    assert scores.leaked
    assert scores.findable is None
    assert "are not classes" in str(
        ig.audit_leakage(lambda g: np.full(TARGETS, 0.5), graph, cutoff=CUTOFF)
    )


@pytest.mark.parametrize(
    "answer", ["g.y[g.time >= 2015]", "np.zeros(50)", "np.full(50, 0.5)", "rng.random((50, 2))"]
)
def test_the_command_writes_json_for_any_result(answer, tmp_path, monkeypatch):
    ig.tsbm(num_nodes=300, num_times=6, num_labels=2, mean_degree=4, seed=0, start=2010).save(
        tmp_path / "g"
    )
    monkeypatch.chdir(tmp_path)
    name = f"trainer_{abs(hash(answer))}"
    head = "import numpy as np\nrng = np.random.default_rng(0)\n"
    (tmp_path / f"{name}.py").write_text(f"{head}def train(g):\n    return {answer}\n")
    done = here("audit", "g", f"{name}:train", json="a.json", draws=6)
    content = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert content["leaked"] is (done.exit_code == 1)
    assert (content["draws"], content["num_predictions"]) == (6, 50)
    assert 0 < content["p"] <= 1
    refused = here("audit", "g", f"{name}:train", draws=0)
    assert (refused.exit_code, "draws=0 is too few" in refused.output) == (2, True)


def test_refusals(graph):
    with pytest.raises(ig.InputError, match="nothing could leak"):
        ig.audit_leakage(lambda g: np.zeros(1), graph.masked(CUTOFF), cutoff=CUTOFF)
    with pytest.raises(
        ig.InputError, match=r"returned shape \(0,\) for 39 targets; return one row per target"
    ):
        ig.audit_leakage(lambda g: np.zeros(0), graph, cutoff=CUTOFF)
    with pytest.raises(ig.InputError, match="not finite"):
        ig.audit_leakage(lambda g: np.full(TARGETS, np.nan), graph, cutoff=CUTOFF)
    with pytest.raises(ig.InputError, match="draws=2 is too few"):
        ig.audit_leakage(lambda g: np.zeros(TARGETS), graph, cutoff=CUTOFF, draws=2)
    one = graph.with_labels(np.where(graph.time >= CUTOFF, 1, graph.y))
    with pytest.raises(ig.InputError, match="fewer than two different labels"):
        ig.audit_leakage(lambda g: np.zeros(TARGETS), one, cutoff=CUTOFF)
    shapes = iter(np.arange(1, 40))
    with pytest.raises(ig.InputError, match="different shapes"):
        ig.audit_leakage(lambda g: np.zeros((TARGETS, next(shapes))), graph, cutoff=CUTOFF)
