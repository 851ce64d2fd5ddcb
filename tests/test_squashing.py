"""Random-projection squashing.

Linear in X, equal to its formula, the same on every engine, at linear cost.
"""

import numpy as np
import pytest

import impact_gnn as ig
from graphs import Counting
from impact_gnn.engines import Disk, Memory
from impact_gnn.propagation.squashing import _Squashing, reverse_of, squash
from reproduction.hetero_tsbm import hetero_tsbm

CITES, PCP = "paper-cites-paper", "paper-cites-paper-cites-paper"


@pytest.fixture(scope="module")
def graph():
    sizes = {"num_papers": 200, "num_authors": 150, "num_fields": 20, "num_institutions": 8}
    edges = {"citations": 900, "writes": 500, "topics": 600, "affiliations": 150}
    return hetero_tsbm(**sizes, **edges, num_labels=4, num_features=6, seed=1).undirected()


def dense(graph, relation, weighting):
    return (
        Memory()
        .operator(graph, relation, weighting=weighting)
        .apply(np.eye(graph.nodes[relation[0]].num_nodes))
    )


def projection(seed, iteration, name, width):
    rng = np.random.default_rng([seed, iteration, *name.encode()])
    return (
        rng.choice([-1.0, 0.0, 1.0], (width, width), p=[1 / 6, 2 / 3, 1 / 6])
        * np.sqrt(3)
        / np.sqrt(width)
    )


def test_two_types_by_hand():
    """Papers and authors with features, one relation: every message and update written out."""
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((7, 3)), rng.standard_normal((4, 3))
    graph = ig.TemporalGraph.hetero(
        nodes={"p": {"x": x, "time": np.arange(7) % 3}, "a": {"x": z}},
        edges={("a", "w", "p"): np.stack([rng.integers(0, 4, 12), rng.integers(0, 7, 12)])},
        target="p",
    ).undirected()
    there, back = dense(graph, ("p", "rev_w", "a"), "pmp"), dense(graph, ("a", "w", "p"), "pmp")
    by_author, back_again = "a-w-p", "p-rev_w-a-w-p"
    squashed_hops = squash(graph, iterations=3, weighting="pmp", seed=5)
    assert list(squashed_hops) == [by_author, back_again]
    papers, authors = x, z
    for k in range(3):
        np.testing.assert_allclose(squashed_hops[by_author][k], back @ authors, atol=1e-5)
        np.testing.assert_allclose(squashed_hops[back_again][k], back @ there @ papers, atol=1e-5)
        # The next representation of papers: their two messages, projected and scaled; that of
        # authors likewise.
        papers, authors = (
            squashed(k + 1, {by_author: back @ authors, back_again: back @ there @ papers}),
            squashed(k + 1, {"p-rev_w-a": there @ papers, "a-w-p-rev_w-a": there @ back @ authors}),
        )


def squashed(iteration, messages):
    return sum(
        message @ projection(5, iteration, name, 3) for name, message in messages.items()
    ) / np.sqrt(2)


def test_projections_are_sparse_keep_lengths_and_differ_between_iterations():
    """Entries are ±√3 or 0, in thirds, over √width.

    The length of a projected row stays what it was, on average.
    """
    matrix = _Squashing(None, 400, 3, None).matrix
    one = matrix("a-w-p", 300, 1) * np.sqrt(400)
    assert set(np.unique(one.round(6))) == {-round(3**0.5, 6), 0.0, round(3**0.5, 6)}
    assert (one == 0).mean() == pytest.approx(2 / 3, abs=0.01)
    x = np.random.default_rng(0).normal(size=(50, 300))
    ratio = np.linalg.norm(x @ matrix("a-w-p", 300, 1), axis=1) / np.linalg.norm(x, axis=1)
    assert ratio.mean() == pytest.approx(1, abs=0.03)
    assert np.array_equal(one, matrix("a-w-p", 300, 1) * np.sqrt(400))
    assert not np.array_equal(one, matrix("a-w-p", 300, 2) * np.sqrt(400))
    assert not np.array_equal(one, matrix("a-w-q", 300, 1) * np.sqrt(400))


def test_linear_in_the_features(graph):
    rng = np.random.default_rng(0)
    other = rng.standard_normal(graph.x.shape).astype(np.float32)
    one, two, sum_of_both, tripled = (
        squash(graph.with_features(x), iterations=3, weighting="pmp")
        for x in (graph.x, other, graph.x + other, 3 * graph.x)
    )
    for name in one:
        for k in range(3):
            scale = np.abs(one[name][k]).max()
            np.testing.assert_allclose(
                one[name][k] + two[name][k], sum_of_both[name][k], atol=2e-6 * scale + 1e-6
            )
            np.testing.assert_allclose(3 * one[name][k], tripled[name][k], atol=6e-6 * scale)


def test_time_weights_enter(graph):
    plain, late = squash(graph, iterations=1), squash(graph, iterations=1, weighting="mmp")
    cites = next(r for r in graph.relations if r[1] == "cites")
    np.testing.assert_allclose(late[CITES][0], dense(graph, cites, "mmp") @ graph.x, atol=1e-5)
    assert not np.allclose(late[CITES][0], plain[CITES][0])
    np.testing.assert_allclose(late[PCP][0], dense(graph, cites, "mmp") @ late[CITES][0], atol=1e-5)


def test_a_type_without_features_begins_with_what_reaches_it(graph):
    """Institutions are two steps from papers; nothing is random noise and nothing stays empty."""
    squashed_hops = squash(graph, iterations=2)
    assert all(np.abs(hop).max() > 0 for hops in squashed_hops.values() for hop in hops)
    nothing = squash(graph.with_features(np.zeros_like(graph.x)), iterations=2)
    assert all((hop == 0).all() for hops in nothing.values() for hop in hops)


def test_seed_and_names_alone_decide_the_projections(graph):
    one, same, other = squash(graph, seed=1), squash(graph, seed=1), squash(graph, seed=2)
    for name in one:
        assert np.array_equal(one[name][1], same[name][1])
    assert np.array_equal(one[CITES][0], other[CITES][0])  # the first message is not projected
    assert not np.allclose(one[CITES][1], other[CITES][1])


def test_width_of_all_matrices(graph):
    squashed_hops = squash(graph, iterations=2, width=9)
    assert {hop.shape for hops in squashed_hops.values() for hop in hops} == {(graph.num_nodes, 9)}


def test_steps_grow_linearly_with_iterations_and_relations(graph):
    counts = []
    for iterations in (2, 3, 4):
        engine = Counting()
        squash(graph, iterations=iterations, engine=engine)
        counts.append(len(engine.calls))
    assert counts[2] - counts[1] == counts[1] - counts[0] <= 2 * len(graph.relations)


def test_disk_gives_the_same_bits_again_and_again(graph, tmp_path):
    expected = squash(graph, iterations=2, width=5, weighting="pmp")
    for _ in range(2):
        squashed_hops = squash(
            graph,
            iterations=2,
            width=5,
            weighting="pmp",
            engine=Disk(tmp_path / "work", memory="20kB"),
        )
        for name, hops in expected.items():
            assert all(np.array_equal(a, b) for a, b in zip(hops, squashed_hops[name], strict=True))


def test_without_a_way_back_only_odd_messages():
    graph = ig.TemporalGraph.hetero(
        nodes={"p": {"x": np.ones((2, 1)), "time": [0, 1]}, "a": {"x": np.ones((1, 1))}},
        edges={("a", "w", "p"): [[0, 0], [0, 1]]},
        target="p",
    )
    assert reverse_of(graph, ("a", "w", "p")) is None
    assert list(squash(graph)) == ["a-w-p"]


def test_refusals(graph):
    bare = ig.TemporalGraph.hetero(
        nodes={"p": {"time": [0, 1]}, "a": {"num_nodes": 1}},
        edges={("p", "r", "a"): [[0], [0]]},
        target="p",
    )
    with pytest.raises(ig.InputError, match="the graph has no features to propagate"):
        squash(bare)
    with pytest.raises(ig.InputError, match=r"no relation leads to 'p'; use graph.undirected\(\)"):
        squash(bare.with_features(np.ones((2, 3))))
    with pytest.raises(
        ig.InputError, match="iterations=0 is not valid; use a whole number of at least 1"
    ):
        squash(graph, iterations=0)
    with pytest.raises(
        ig.InputError, match="width=0 is not valid; use a whole number of at least 1"
    ):
        squash(graph, width=0)
    with pytest.raises(
        ig.InputError, match="seed=-1 is not valid; use a whole number of at least 0"
    ):
        squash(graph, seed=-1)
