"""Label shift: known class proportions are recovered, and probabilities follow Bayes' rule."""

import numpy as np
import pytest
from scipy.optimize import minimize

from impact_gnn.label_shift import confusion_of, ratio, reweighted, saerens
from reproduction.competing.bbse import bbse

OLD, NEW = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
# p(x | y) of four kinds of row
LIKELIHOOD = np.array([[0.7, 0.2, 0.05, 0.05], [0.1, 0.6, 0.2, 0.1], [0.05, 0.15, 0.2, 0.6]])


def posterior(shares):
    joint = shares[:, None] * LIKELIHOOD
    return (joint / joint.sum(0)).T


def targets(count=20000):
    """Kinds of row in exactly the proportions that follow from the new class proportions."""
    return np.repeat(np.arange(4), np.round(count * (NEW @ LIKELIHOOD)).astype(int))


def test_em_recovers_class_proportions_and_bayes_rule_the_probabilities():
    probabilities = posterior(OLD)[targets()]
    estimate = saerens(probabilities, OLD, steps=100_000, tolerance=1e-14)
    np.testing.assert_allclose(estimate, NEW, atol=1e-4)
    np.testing.assert_allclose(
        reweighted(probabilities, ratio(estimate, OLD)), posterior(NEW)[targets()], atol=1e-3
    )


def test_em_reaches_the_largest_likelihood():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([0.5, 0.5, 0.5], 200)

    def loss(free):
        shares = np.exp(free) / np.exp(free).sum()
        return -np.log((probabilities * shares / OLD).sum(1)).mean()

    best = minimize(
        loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    ).fun
    assert loss(np.log(saerens(probabilities, OLD))) == pytest.approx(best, abs=1e-8)


def test_nothing_moves_where_nothing_has_moved():
    rows = np.repeat(np.arange(4), np.round(20000 * (OLD @ LIKELIHOOD)).astype(int))
    np.testing.assert_allclose(saerens(posterior(OLD)[rows], OLD), OLD, atol=1e-3)
    np.testing.assert_array_equal(saerens(posterior(OLD)[:0], OLD), OLD)


def test_bbse_recovers_class_proportions_from_confusion():
    guess = posterior(OLD).argmax(1)
    joint = np.zeros((3, 3))
    for y in range(3):
        for kind in range(4):
            joint[guess[kind], y] += OLD[y] * LIKELIHOOD[y, kind]
    np.testing.assert_allclose(bbse(1e9 * joint, guess[targets()]), NEW, atol=1e-3)


def test_confusion_is_counted_as_in_a_loop():
    rng = np.random.default_rng(0)
    guesses, truth = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    wanted = np.zeros((3, 3))
    for a, b in zip(guesses, truth, strict=True):
        wanted[a, b] += 1
    np.testing.assert_array_equal(confusion_of(guesses, truth, 3), wanted)


def test_a_class_that_is_never_predicted_keeps_its_proportion():
    confusion = np.array([[40.0, 5, 5], [5, 40, 5], [0, 0, 0]])  # the third is taken for the others
    estimate = bbse(confusion, np.repeat([0, 1], 50))
    assert estimate.sum() == pytest.approx(1)
    assert 0.03 < estimate[2] < 0.2
    assert (bbse(confusion, np.zeros(10, int)) >= 0).all()


def test_classes_without_training_labels_stay_at_zero():
    probabilities, prior = np.array([[0.6, 0.4, 0.0], [0.5, 0.5, 0.0]]), np.array([0.5, 0.5, 0.0])
    estimate = saerens(probabilities, prior)
    assert estimate[2] == 0
    assert np.isfinite(reweighted(probabilities, ratio(estimate, prior))).all()
    np.testing.assert_array_equal(
        reweighted(probabilities[:1], np.array([0.0, 0.0, 1.0])), probabilities[:1]
    )
