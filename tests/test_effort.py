"""The cost of fits in work units, and what an effort may spend."""

from dataclasses import replace

import pytest

from impact_gnn.backtesting.effort import EFFORTS, Size, allowed_work, cost
from impact_gnn.estimators import Candidate
from reproduction.bench.costs import CANDIDATES

# Fields of `Size`, and CPU seconds of a fit of the first candidates, the mean over two folds of a
# quick run (AMD EPYC, one thread, November 2026). `python -m reproduction bench costs` prints such
# rows.
MEASURED = {
    "aan": ((1631, 16414, 187076, 40, 7, 384, 3, 2), (0.37, 0.40, 1.56, 0.15, 0.12)),
    "acl": ((24926, 86381, 617678, 13, 13, 256, 2, 1), (4.23, 4.04, 9.25, 1.59, 1.02)),
    "arxiv_cs": ((76050, 117169, 725264, 27, 40, 256, 2, 1), (5.39, 6.09, 14.62, 2.63, 1.48)),
    "elife": ((6582, 18797, 1371428, 15, 18, 640, 5, 4), (2.00, None, 4.03, None, 1.05)),
    "f1": ((22918, 27118, 165006, 76, 2, 126, 8, 3), (3.90, None, 0.36, 0.24, 0.31, 0.70)),
    "metamath": ((20421, 39137, 1464044, 29, 17, 384, 3, 2), (1.39, 3.30, 3.36, 1.18, 1.13)),
    "music": ((3459, 5603, 85462, 9, 14, 78, 3, 2), (0.98, 0.57, 0.65, 0.09, 0.15)),
    "nber": ((12223, 29434, 134180, 49, 21, 128, 2, 1), (2.84, 3.32, 4.90, 0.72, 0.63)),
    "nvd": ((41688, 111116, 503184, 31, 13, 192, 2, 1), (3.55, 3.77, 9.59, 1.06, 0.85, 1.45)),
    "ogbn_arxiv": ((120740, 169343, 2315598, 35, 40, 192, 3, 2), (6.33, 8.21, 19.98, 2.94, 1.44)),
    "scotus": ((6200, 30288, 432912, 235, 12, 717, 3, 2), (1.10, 1.24, 2.56, 0.41, 0.41)),
    "twitch": ((33707, 36890, 985150, 23, 2, 192, 3, 2), (2.63, 2.37, 2.09, 0.70, 0.42)),
}


@pytest.mark.parametrize("graph", MEASURED)
def test_costs_are_within_a_factor_of_two_of_measured_seconds(graph):
    """All fits of a graph together; a single one stops early or late by chance."""
    numbers, seconds = MEASURED[graph]
    size = Size(*numbers)
    costs, measured = [], []
    for text, one in zip(CANDIDATES, seconds, strict=False):
        if one is not None:
            costs.append(cost(Candidate.parse(text), size, "sign"))
            measured.append(one)
    assert 0.5 < sum(costs) / sum(measured) < 2
    ratios = [a / b for a, b in zip(costs, measured, strict=True)]
    assert min(ratios) > 0.25
    assert max(ratios) < 4


def test_work_grows_with_the_graph_and_the_model():
    small = Size(
        rows=1000, nodes=2000, edges=9000, periods=9, classes=5, features=60, hops=3, label_hops=2
    )
    large = replace(small, rows=100_000, nodes=200_000, edges=900_000)
    for text in (
        "plain",
        "trees:labels",
        "gcn:plain",
        "linear:plain",
        "features+smooth",
        "sehgnn:snapshot+labels",
    ):
        candidate = Candidate.parse(text)
        assert 0 < cost(candidate, small, "sign") < cost(candidate, large, "sign")
    linear, network = Candidate.parse("linear:labels"), Candidate.parse("labels")
    assert cost(linear, large, "sign") < cost(network, large, "sign")


def test_an_effort_may_spend_more_where_a_fit_costs_more():
    quick = EFFORTS["quick"]
    assert (
        0 < allowed_work(quick, 0.1) < allowed_work(quick, 2) < allowed_work(EFFORTS["normal"], 2)
    )
