"""The temporal stochastic block model.

Exact in distribution, reproducible by seed, the same on disk.
"""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from impact_gnn.checks import InputError
from impact_gnn.data import drawing
from impact_gnn.data.drawing import Draw
from impact_gnn.data.tsbm import PROTOCOLS, TSBM, tsbm, tsbm_model
from impact_gnn.graph import HOMOGENEOUS, storage
from reproduction.synthetic import block_sizes, true_connectivity
from reproduction.write_tsbm import edge_chunks, write_tsbm

LEAST_P = 1e-4


def draws_between_blocks(model, graph):
    """Successful draws and possible draws for every unordered pair of (label, time) blocks, by
    looking at all edges.
    """
    block = graph.y * model.num_times + (graph.time - model.start)
    blocks = model.num_labels * model.num_times
    source, target = block[graph.edge_index]
    stored = np.bincount(source * blocks + target, minlength=blocks**2).reshape(blocks, blocks)
    size = np.bincount(block, minlength=blocks)
    possible = np.multiply.outer(size, size)
    np.fill_diagonal(possible, size * (size - 1) // 2)
    np.fill_diagonal(stored, np.diag(stored) // 2)
    upper = np.triu_indices(blocks)
    return stored[upper], possible[upper] * (2 if model.protocol == "released" else 1)


def fit(model, graph, probability):
    """P-value of Σ (observed − np)² / np(1−p), where every block pair is large enough for it."""
    observed, possible = draws_between_blocks(model, graph)
    blocks = model.num_labels * model.num_times
    p = probability.reshape(blocks, blocks)[np.triu_indices(blocks)]
    large = possible * p * (1 - p) > 5
    assert large.sum() > 50
    spread = (possible * p * (1 - p))[large]
    return stats.chi2.sf(((observed - possible * p)[large] ** 2 / spread).sum(), large.sum())


def multiplicities(graph):
    """How often each unordered pair is linked, for all pairs i < j [N, N]."""
    count = np.zeros((graph.num_nodes,) * 2, int)
    np.add.at(count, tuple(graph.edge_index), 1)
    assert np.array_equal(count, count.T)
    assert not np.diag(count).any()
    return count


def complete(protocol, num_nodes=37, num_labels=2, num_times=3):
    ones = np.ones((num_labels, num_labels))
    return TSBM(
        np.zeros((num_labels, 1)),
        std=np.ones(num_labels),
        base=ones,
        decay=ones,
        num_nodes=num_nodes,
        num_times=num_times,
        protocol=protocol,
    )


# -- distribution


@pytest.mark.parametrize("piece", [40, drawing.EDGES_PER_PIECE])
@pytest.mark.parametrize("decay", [0.6, "random"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_block_frequencies_follow_the_probabilities(protocol, decay, piece, monkeypatch):
    # small pieces: every block pair is cut up
    monkeypatch.setattr(drawing, "EDGES_PER_PIECE", piece)
    model = tsbm_model(
        num_nodes=2000, num_times=5, num_labels=4, decay=decay, protocol=protocol, seed=3
    )
    graph = model.sample()
    assert fit(model, graph, model.probability) > LEAST_P
    # The test has teeth: probabilities off by 4 %, or a decay off by .02, are caught.
    assert fit(model, graph, model.probability * 1.04) < LEAST_P
    assert fit(model, graph, replace(model, decay=model.decay - 0.02).probability) < LEAST_P


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sparse_graphs_follow_the_probabilities_too(protocol):
    model = tsbm_model(50_000, 4, 3, decay=0.7, protocol=protocol, mean_degree=12, seed=1)
    graph = model.sample()
    assert fit(model, graph, model.probability) > LEAST_P
    assert fit(model, graph, model.probability * 1.04) < LEAST_P


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("num_nodes", [6, 7])
def test_every_pair_of_a_block_is_equally_likely_and_independent(protocol, num_nodes):
    p, rounds = 0.3, 1500
    model = TSBM(
        np.zeros((1, 1)),
        std=np.ones(1),
        base=np.full((1, 1), p),
        decay=np.ones((1, 1)),
        num_nodes=num_nodes,
        num_times=1,
        protocol=protocol,
    )
    pairs = np.triu_indices(num_nodes, 1)
    multiplicity = np.stack([multiplicities(model.sample(seed))[pairs] for seed in range(rounds)])
    draws = 2 if protocol == "released" else 1
    expected = stats.binom.pmf(np.arange(draws + 1), draws, p) * rounds
    for pair in multiplicity.T:  # multiplicity 0, 1 (, 2) of every single pair
        assert stats.chisquare(np.bincount(pair, minlength=draws + 1), expected).pvalue > LEAST_P
    # Joint law of two pairs: 0/1 tables of neighbours in the numbering and of distant ones.
    linked = multiplicity > 0
    share = 1 - (1 - p) ** draws
    joint = (
        np.array([(1 - share) ** 2, share * (1 - share), share * (1 - share), share**2]) * rounds
    )
    for one in range(len(pairs[0]) - 1):
        for other in (one + 1, len(pairs[0]) - 1 - one):
            if other != one:
                table = np.bincount(2 * linked[:, one] + linked[:, other], minlength=4)
                assert stats.chisquare(table, joint).pvalue > LEAST_P / 10
    edges = multiplicity.sum(1)
    trials = draws * len(pairs[0])
    cells = np.bincount(edges, minlength=trials + 1)
    law = stats.binom.pmf(np.arange(trials + 1), trials, p) * rounds
    common = law > 5
    observed = np.append(cells[common], cells[~common].sum())
    assert stats.chisquare(observed, np.append(law[common], law[~common].sum())).pvalue > LEAST_P


def test_multiplicities_of_released_are_two_coins():
    model = tsbm_model(600, 3, 2, protocol="released", decay=0.5, seed=5)
    graph = model.sample()
    count = multiplicities(graph)
    period = graph.time - model.start
    p = model.probability[graph.y[:, None], period[:, None], graph.y[None], period[None]]
    upper = np.triu(np.ones_like(count, bool), 1)
    for value in np.unique(p):
        here = upper & (p == value)
        law = stats.binom.pmf([0, 1, 2], 2, value) * here.sum()
        assert stats.chisquare(np.bincount(count[here], minlength=3), law).pvalue > LEAST_P
    assert count.max() == 2


def test_text_is_simple():
    count = multiplicities(tsbm(num_nodes=500, seed=2))
    assert count.max() == 1


@pytest.mark.parametrize("piece", [7, drawing.EDGES_PER_PIECE])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_probability_one_links_every_pair(protocol, piece, monkeypatch):
    monkeypatch.setattr(drawing, "EDGES_PER_PIECE", piece)
    count = multiplicities(complete(protocol).sample())
    expected = 2 if protocol == "released" else 1
    assert np.array_equal(count, expected * (1 - np.eye(37, dtype=int)))


def test_pair_numbers_of_large_blocks():
    # beyond 2^53 pairs the square root alone is not exact
    for n in (
        2,
        3,
        94_906_267,
        3_000_000_000,
    ):
        last = n * (n - 1) // 2 - 1
        assert drawing._pair(last, n, True, False) == (n - 1, n - 2)
        assert drawing._pair(last - (n - 2), n, True, False) == (n - 1, 0)
        assert drawing._pair(n * (n - 1) - 1, n, True, True) == (n - 1, n - 2)
        assert drawing._pair(0, n, True, True) == (0, 1)


# -- nodes


def test_text_has_equal_blocks():
    model = tsbm_model()
    graph = model.sample()
    assert np.array_equal(block_sizes(model, graph.y, graph.time), np.full((10, 10), 20))
    uneven = tsbm_model(num_nodes=257, num_times=5, num_labels=10)
    sizes = block_sizes(uneven, *[getattr(uneven.sample(), name) for name in ("y", "time")])
    assert sizes.sum() == 257
    assert set(np.unique(sizes)) == {5, 6}


def test_released_has_independent_uniform_labels_and_times():
    model = tsbm_model(
        num_nodes=20_000, num_times=6, num_labels=5, protocol="released", mean_degree=1
    )
    graph = model.sample()
    sizes = block_sizes(model, graph.y, graph.time)
    assert stats.chisquare(sizes.ravel()).pvalue > LEAST_P
    assert sizes.std() > 5  # not the equal blocks of the other protocol


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_node_numbers_tell_the_order_of_time_and_nothing_of_labels(protocol):
    graph = tsbm(num_nodes=5000, protocol=protocol, mean_degree=2)
    assert (np.diff(graph.time) >= 0).all()
    within = graph.time[1:] == graph.time[:-1]
    repeats = (graph.y[1:] == graph.y[:-1])[within]
    assert abs(repeats.mean() - 0.1) < 5 * np.sqrt(0.09 / len(repeats))


@pytest.mark.parametrize(
    ("protocol", "feature_std"), [("text", None), ("released", None), ("released", "uniform")]
)
def test_features_have_their_label_mean_and_noise(protocol, feature_std):
    model = tsbm_model(
        20_000, num_features=6, protocol=protocol, feature_std=feature_std, mean_degree=1, seed=4
    )
    assert np.all(model.std == 4.0) == (protocol == "released" and feature_std is None)
    assert 0 <= model.std.min() <= model.std.max() <= 8
    graph = model.sample()
    z = (graph.x - model.mean[graph.y]) / model.std[graph.y, None]
    assert stats.kstest(z.ravel(), "norm").pvalue > LEAST_P
    assert abs(np.corrcoef(z.T) - np.eye(6)).max() < 0.05


def test_noise_can_be_passed():
    assert np.array_equal(tsbm_model(num_labels=3, feature_std=2).std, [2.0, 2.0, 2.0])
    exact = tsbm_model(num_nodes=50, feature_std=0)
    graph = exact.sample()
    assert np.array_equal(graph.x, exact.mean.astype(np.float32)[graph.y])


# -- parameters


def test_probability_decays_by_gamma_per_step():
    model = tsbm_model(num_labels=3, num_times=6, decay="random", seed=2)
    for y in range(3):
        for other in range(3):
            for t in range(6):
                for s in range(6):
                    expected = model.base[y, other] * model.decay[y, other] ** abs(t - s)
                    assert model.probability[y, t, other, s] == pytest.approx(expected, rel=1e-14)


def test_base_probabilities():
    released = tsbm_model(protocol="released").base
    assert np.array_equal(released, np.where(np.eye(10), 0.6, 0.24))
    bases = np.stack([tsbm_model(seed=seed).base for seed in range(60)])
    off = ~np.eye(10, dtype=bool)
    upper = np.triu(off)
    assert stats.kstest(bases[:, ~off].ravel() / 0.6, "uniform").pvalue > LEAST_P
    assert stats.kstest(bases[:, upper].ravel() / 0.24, "uniform").pvalue > LEAST_P


def test_random_decay_is_drawn_per_unordered_label_pair():
    decays = np.stack([tsbm_model(seed=seed, decay="random").decay for seed in range(60)])
    assert np.array_equal(decays, decays.transpose(0, 2, 1))
    drawn = decays[:, np.triu(np.ones((10, 10), bool))].ravel()
    assert stats.kstest((drawn - 0.4) / 0.3, "uniform").pvalue > LEAST_P


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_zero_diagonal_links_equal_labels_at_equal_times_only(protocol):
    model = tsbm_model(num_nodes=1000, decay="random-zero-diagonal", protocol=protocol)
    assert not np.diag(model.decay).any()
    assert (model.decay[~np.eye(10, dtype=bool)] >= 0.4).all()
    graph = model.sample()
    same_label = graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]
    same_time = graph.time[graph.edge_index[0]] == graph.time[graph.edge_index[1]]
    assert same_time[same_label].all()
    assert same_label.any()
    assert not same_time[~same_label].all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_mean_degree_is_reached(protocol):
    for nodes in (4000, 4321):
        graph = tsbm(nodes, 6, 7, protocol=protocol, mean_degree=15, seed=nodes)
        # The number of draws is close to Poisson, and each is stored twice; block sizes add a
        # little.
        assert abs(graph.edge_index.shape[1] - 15 * nodes) < 7 * np.sqrt(2 * 15 * nodes)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("num_nodes", [3, 30, 47])
def test_expected_edges_average_over_block_sizes(protocol, num_nodes):
    model = tsbm_model(num_nodes, 3, 4, protocol=protocol, decay="random", seed=9)
    rounds, totals = 3000, []
    for seed in range(rounds):
        label, period = drawing.draw_nodes(model, np.random.default_rng(seed))
        p = model.probability[label[:, None], period[:, None], label[None], period[None]]
        totals.append((p.sum() - np.trace(p)) * (2 if model.ordered else 1))
    assert abs(np.mean(totals) - model.expected_edges) < 5 * np.std(totals) / np.sqrt(rounds) + 1e-9


def test_true_connectivity_is_the_share_of_expected_neighbours():
    model = tsbm_model(60, 3, 2, decay=0.5, protocol="released", seed=1)
    graph = model.sample()
    sizes = block_sizes(model, graph.y, graph.time)
    fast = true_connectivity(model, sizes)
    for y in range(2):
        for t in range(3):
            expected = np.zeros((2, 3))
            for other in range(2):
                for s in range(3):
                    others = sizes[other, s] - (1 if (y, t) == (other, s) else 0)
                    expected[other, s] = others * model.probability[y, t, other, s]
            np.testing.assert_allclose(fast[y, t], expected / expected.sum(), rtol=1e-12)


# -- seeds, chunks, disk


def same_graph(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("x", "y", "time", "edge_index")
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_same_seed_same_graph(protocol):
    model = tsbm_model(500, protocol=protocol, seed=8)
    assert same_graph(tsbm(500, protocol=protocol, seed=8), model.sample())
    assert same_graph(model.sample(seed=3), model.sample(seed=3))
    assert not same_graph(model.sample(seed=3), model.sample(seed=4))


def test_decay_changes_edges_only():
    one, other = (tsbm(500, decay=decay, seed=8) for decay in (0.5, "random"))
    assert np.array_equal(one.x, other.x)
    assert np.array_equal(one.y, other.y)
    assert not np.array_equal(one.edge_index, other.edge_index)


def test_start_shifts_time_and_nothing_else():
    one, other = tsbm(400, seed=1), tsbm(400, seed=1, start=-1990)
    assert np.array_equal(one.time - 1990, other.time)
    assert np.array_equal(one.edge_index, other.edge_index)
    assert np.array_equal(one.x, other.x)
    model = tsbm_model(400, seed=1, start=-1990)
    assert model.times.tolist() == list(range(-1990, -1980))
    assert np.array_equal(block_sizes(model, other.y, other.time), np.full((10, 10), 4))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", [1, 5000, 10**9])
def test_chunks_are_the_whole(protocol, size):
    model = tsbm_model(700, 4, 3, protocol=protocol, seed=2)
    chunks = list(edge_chunks(Draw(model, model.seed), size))
    assert np.array_equal(np.concatenate(chunks, axis=1), model.sample().edge_index)
    assert chunks[0].dtype == np.int32
    if size == 5000:
        largest_piece = 2 * Draw(model, 2).pairs.count.max()
        assert max(chunk.shape[1] for chunk in chunks) <= max(size, largest_piece)
        assert len(chunks) > 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_disk_holds_the_sample(protocol, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.write_tsbm.FEATURES", 100)
    model = tsbm_model(700, 4, 3, 7, protocol=protocol, seed=2, start=1999)
    steps = []
    write_tsbm(
        tmp_path / "graph", model, seed=5, memory="50MB", progress=lambda *now: steps.append(now)
    )
    parts = storage.read(tmp_path / "graph", verify=True)
    monkeypatch.undo()  # the cut into chunks must not matter
    graph = model.sample(seed=5)
    for name in ("x", "y", "time"):
        assert np.array_equal(parts["nodes"]["node"][name], getattr(graph, name))
        assert parts["nodes"]["node"][name].dtype == getattr(graph, name).dtype
    assert list(parts["edges"][HOMOGENEOUS]) == ["edge_index"]
    edges = parts["edges"][HOMOGENEOUS]["edge_index"]
    assert np.array_equal(edges, graph.edge_index)
    assert edges.dtype == np.int32
    assert (parts["target"], parts["num_labels"]) == ("node", 3)
    assert steps[-1][:3] == ("edges", edges.shape[1], edges.shape[1])


def test_a_graph_without_edges(tmp_path):
    model = tsbm_model(1, 1, 1)
    assert model.sample().edge_index.shape == (2, 0)
    assert list(edge_chunks(Draw(model, model.seed), 10)) == []
    write_tsbm(tmp_path / "one", model)
    assert storage.read(tmp_path / "one")["edges"][HOMOGENEOUS]["edge_index"].shape == (2, 0)


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def stop(*event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tsbm(tmp_path / "graph", tsbm_model(300), progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_many_labels():
    # 256 blocks fill a byte to the brim.
    for labels, times in ((256, 1), (1, 256), (300, 3)):
        graph = tsbm(2000, times, labels, mean_degree=3)
        assert graph.y.max() == labels - 1
        assert graph.time.max() == times - 1


# -- refusals


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_nodes": 0}, r"num_nodes=0 is not valid; use a whole number of at least 1"),
        ({"num_times": 2.5}, r"num_times=2.5 is not valid"),
        ({"num_labels": True}, r"num_labels=True is not valid"),
        ({"num_features": 0}, r"num_features=0 is not valid"),
        ({"seed": -1}, r"seed=-1 is not valid; use a whole number of at least 0"),
        ({"start": 0.5}, r"start=0.5 is not valid"),
        ({"start": 2**62}, r"start=\d+ is too large for 64-bit times"),
        ({"protocol": "paper"}, r"protocol='paper' is not valid; choose one of 'text', 'released'"),
        (
            {"decay": "fixed"},
            r"decay='fixed' is not valid; choose one of 'random', 'random-zero-diagonal'",
        ),
        ({"decay": 1.5}, r"decay=1.5 is not valid; use a number from 0 to 1, 'random' or"),
        ({"decay": float("nan")}, r"decay=nan is not valid"),
        (
            {"feature_std": "normal"},
            r"feature_std='normal' is not valid; use a number of at least 0, or 'uniform'",
        ),
        ({"feature_std": -1}, r"feature_std=-1 is not valid"),
        ({"same": 1.2}, r"same=1.2 is not a probability; use a number from 0 to 1"),
        ({"different": -0.1}, r"different=-0.1 is not a probability"),
        ({"mean_degree": 0}, r"mean_degree=0 is not a positive number"),
        (
            {"num_nodes": 1, "mean_degree": 3},
            r"mean_degree cannot be reached, because no edge is possible",
        ),
        (
            {"mean_degree": 1500, "protocol": "released"},
            r"mean_degree=1500 needs an edge probability of 2.51; use at most 598.5, or more nodes",
        ),
    ],
)
def test_bad_options_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        tsbm(**options)


def test_bad_samples_and_places_are_refused(tmp_path, monkeypatch):
    model = tsbm_model(100)
    with pytest.raises(InputError, match=r"seed='a' is not valid"):
        model.sample(seed="a")
    with pytest.raises(
        InputError, match=r"memory='1MB' is too small for 100 nodes in 100 blocks; use at least"
    ):
        write_tsbm(tmp_path / "graph", model, memory="1MB")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=1000))
    with pytest.raises(
        InputError,
        match=r"needs .* more disk space, but 1.0 kB are free; free some space or choose another",
    ):
        write_tsbm(tmp_path / "deep" / "graph", model)
    assert list(tmp_path.iterdir()) == []
