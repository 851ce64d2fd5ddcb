"""The heterogeneous block model.

Sizes, block frequencies, decay in time, homophily, reproducible by seed.
"""

import numpy as np
import pytest

import impact_gnn as ig
from reproduction.hetero_tsbm import (
    AFFILIATED,
    CITES,
    MAG,
    TOPIC,
    WRITES,
    Links,
    Side,
    hetero_tsbm,
    scaled,
)


def sides(seed, rows, columns, labels, times):
    rng = np.random.default_rng(seed)
    return [
        Side(rng.integers(labels, size=n), rng.integers(times, size=n)) for n in (rows, columns)
    ]


def block_counts(law, links):
    """Links by label and period of both ends [Y, T, Y, T]."""
    out = np.zeros((law.num_labels, law.num_times) * 2)
    first, second = links
    rows, columns = law.rows, law.columns
    place = rows.label[first], rows.period[first], columns.label[second], columns.period[second]
    np.add.at(out, place, 1)
    return out


def block_chances(law):
    """Probability and number of pairs by label and period of both ends, from the definition, pair
    by pair.
    """
    same, different = law.bases()
    labels = np.arange(law.num_labels)
    base = np.where(labels[:, None] == labels[None, :], same, different)
    distance = np.abs(np.subtract.outer(np.arange(law.num_times), np.arange(law.num_times)))
    chance = base[:, None, :, None] * (law.decay**distance)[None, :, None, :]
    ours, theirs = (side.sizes(law.num_labels, law.num_times) for side in (law.rows, law.columns))
    return chance, ours[:, :, None, None] * theirs[None, None]


def test_frequencies_of_blocks_are_the_probabilities_between_two_kinds():
    rows, columns = sides(0, 600, 500, 3, 4)
    law = Links(
        "writes",
        rows=rows,
        columns=columns,
        expected=20_000,
        decay=0.5,
        num_labels=3,
        num_times=4,
        homophily=0.6,
    )
    chance, pairs = block_chances(law)
    drawn = sum(block_counts(law, law.draw(np.random.SeedSequence(k))) for k in range(10))
    deviation = (drawn - 10 * pairs * chance) / np.sqrt(10 * pairs * chance * (1 - chance))
    assert np.abs(deviation).max() < 4.5  # 144 blocks
    assert 0.8 < deviation.std() < 1.2
    assert abs((pairs * chance).sum() - 20_000) < 1e-6
    assert abs(np.einsum("ysyt->", pairs * chance) / 20_000 - 0.6) < 1e-9


def test_frequencies_of_blocks_are_the_probabilities_within_a_kind():
    side, _ = sides(1, 600, 1, 3, 4)
    law = Links(
        "citations",
        rows=side,
        columns=side,
        expected=20_000,
        decay=0.6,
        num_labels=3,
        num_times=4,
        homophily=0.5,
    )
    chance, pairs = block_chances(law)
    own = side.sizes(3, 4)
    for y in range(3):
        for t in range(4):
            # each unordered pair is counted from both ends
            pairs[y, t, y, t] = own[y, t] * (own[y, t] - 1)
    drawn = np.zeros_like(chance)
    for k in range(10):
        links = law.draw(np.random.SeedSequence(k))
        key = links.min(0) * 600 + links.max(0)
        assert len(np.unique(key)) == len(key), "a pair is linked once at most"
        assert (links[0] != links[1]).all()
        drawn += block_counts(law, links) + block_counts(law, links[::-1])
    expected = 10 * pairs * chance
    deviation = (drawn - expected) / np.sqrt(2 * expected * (1 - chance))
    assert np.abs(deviation).max() < 4.5
    assert abs((pairs * chance).sum() / 2 - 20_000) < 1e-6


def test_every_pair_of_nodes_has_its_own_chance():
    """Not only blocks: a link is as likely for each pair of nodes of a block."""
    rows, columns = sides(2, 12, 10, 2, 2)
    law = Links(
        "writes",
        rows=rows,
        columns=columns,
        expected=40,
        decay=0.5,
        num_labels=2,
        num_times=2,
        homophily=0.6,
    )
    times = 1000
    counts = np.zeros((12, 10))
    for k in range(times):
        links = law.draw(np.random.SeedSequence(k))
        np.add.at(counts, tuple(links), 1)
    chance, _ = block_chances(law)
    p = chance[rows.label[:, None], rows.period[:, None], columns.label[None], columns.period[None]]
    assert counts.max() <= times
    assert np.abs((counts / times - p) / np.sqrt(p * (1 - p) / times)).max() < 4.5


def test_sizes_types_and_directions():
    graph = hetero_tsbm(seed=3)
    assert graph.target == "paper"
    assert list(graph.relations) == [CITES, WRITES, TOPIC, AFFILIATED]
    for triple, expected in (
        (CITES, 14_000),
        (WRITES, 9_000),
        (TOPIC, 12_000),
        (AFFILIATED, 3_000),
    ):
        num_edges = graph.relations[triple].num_edges
        assert abs(num_edges - expected) < 5 * np.sqrt(expected)
    newer, older = graph.relations[CITES].edge_index
    assert (newer > older).all()
    assert (graph.time[newer] >= graph.time[older]).all()
    assert all(
        graph.nodes[kind].time is None and graph.nodes[kind].y is None
        for kind in graph.nodes
        if kind != "paper"
    )
    blocks = np.bincount(graph.y * 10 + graph.time)
    assert blocks.max() - blocks.min() <= 1


def test_features_depend_on_the_label_and_not_on_time():
    graph = hetero_tsbm(num_papers=20_000, num_labels=4, num_features=6, feature_std=2.0, seed=4)
    noise = np.array(graph.x, dtype=float)
    for label in range(4):
        noise[graph.y == label] -= noise[graph.y == label].mean(0)
    assert abs(noise.std() - 2) < 0.02
    by_time = np.array([noise[graph.time == t].mean(0) for t in graph.times])
    assert np.abs(by_time).max() < 4.5 * 2 / np.sqrt(2000)


def test_papers_of_one_author_are_near_in_time_and_topic():
    graph = hetero_tsbm(
        num_papers=4000, num_authors=2000, writes=20_000, activity=0.4, homophily=0.7, seed=5
    )
    author, paper = graph.relations[WRITES].edge_index
    mixed = np.random.default_rng(0).permutation(len(author))
    author, paper = author[mixed], paper[mixed]
    order = np.argsort(author, kind="stable")
    author, paper = author[order], paper[order]
    pair = author[1:] == author[:-1]
    a, b = paper[1:][pair], paper[:-1][pair]
    distance = np.abs(graph.time[a] - graph.time[b])
    # Independent times would be 3.3 apart on average, and a tenth of pairs would share the label.
    assert distance.mean() < 2.2
    pairs_of_times = np.where(np.arange(10) > 0, 2, 1) * (10 - np.arange(10))
    share = np.bincount(distance, minlength=10) / pairs_of_times
    assert (np.diff(share[:6]) < 0).all(), "the chance of a pair falls with its distance"
    assert abs((graph.y[a] == graph.y[b]).mean() - (0.7**2 + 0.3**2 / 9)) < 0.04


def test_one_seed_one_graph():
    one, same, other = hetero_tsbm(seed=6), hetero_tsbm(seed=6), hetero_tsbm(seed=7)
    assert np.array_equal(one.x, same.x)
    for triple, part in one.relations.items():
        assert np.array_equal(part.edge_index, same.relations[triple].edge_index)
        assert not np.array_equal(part.edge_index, other.relations[triple].edge_index)


def test_the_preset_has_the_sizes_of_ogbn_mag_and_can_be_drawn_small():
    assert (MAG["num_papers"], MAG["num_authors"], MAG["num_labels"]) == (736_389, 1_134_649, 349)
    graph = hetero_tsbm(**scaled(MAG, 0.05), seed=0)
    assert graph.num_nodes == 36819
    assert graph.x.shape[1] == 128
    assert graph.num_labels == 349
    assert [int(graph.times[0]), int(graph.times[-1])] == [2010, 2019]
    assert graph.relations[WRITES].num_edges == pytest.approx(357_283, rel=0.01)


def test_one_label_and_no_edges_are_possible():
    graph = hetero_tsbm(num_labels=1, citations=0, seed=0)
    assert graph.relations[CITES].num_edges == 0
    assert graph.relations[WRITES].num_edges > 0


def test_refusals():
    with pytest.raises(
        ig.InputError, match="num_papers=0 is not valid; use a whole number of at least 1"
    ):
        hetero_tsbm(num_papers=0)
    with pytest.raises(ig.InputError, match="writes=-1 is not valid"):
        hetero_tsbm(writes=-1)
    with pytest.raises(ig.InputError, match="homophily=2 is not valid; use a number from 0 to 1"):
        hetero_tsbm(homophily=2)
    with pytest.raises(
        ig.InputError,
        match="topics=900,000 needs 360,000 links between nodes of one label",
    ):
        hetero_tsbm(topics=900_000)
    with pytest.raises(ig.InputError, match="feature_std=-1 is not valid; use at least 0"):
        hetero_tsbm(feature_std=-1)
    with pytest.raises(ig.InputError, match=r"start=0.5 is not valid"):
        hetero_tsbm(start=0.5)
    with pytest.raises(ig.InputError, match="factor=0 is not a positive number"):
        scaled(MAG, 0)
