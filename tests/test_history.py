"""History features.

Equal to naive loops, blind to what is not known yet, the same on every engine.
"""

from dataclasses import replace

import numpy as np
import pytest

import impact_gnn as ig
from impact_gnn.backtesting.candidates import initial_candidates
from impact_gnn.backtesting.folds import fold_of, prior_before, prior_drift, windows
from impact_gnn.checks import InputError
from impact_gnn.engines import Disk, Memory
from impact_gnn.estimators import Pipeline
from impact_gnn.explanations import explain
from impact_gnn.methods import Method
from impact_gnn.propagation.history import (
    DRIFT,
    FIRST_VARIANCE,
    HALF_LIVES,
    MOST_FANOUT,
    NEVER,
    SHRINKAGE,
    history_columns,
    history_names,
    recent_and_last_labels,
)
from reproduction.event_tables import log_losses, matches, ratings

CUTOFF = 5
NUM_CLASSES = 3
HOME = ("team", "home", "match")
AWAY = ("team", "away", "match")
PLAYED_IN = ("match", "played_in", "ground")
LIES_IN = ("ground", "lies_in", "town")
SEQUEL = ("match", "follows", "match")
TRAINS = ("team", "does", "training")


def events(seed=0, num_matches=90, label_delay=0.0, **changes):
    """Matches of two teams in a ground in a town, with equal timestamps, gaps and late edges."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.integers(0, 7, num_matches))
    timestamp = 10.0 * time + rng.integers(0, 4, num_matches)
    y = np.where(rng.random(num_matches) < 0.15, -1, rng.integers(0, NUM_CLASSES, num_matches))
    match = np.arange(num_matches)
    sequel = rng.integers(0, num_matches, (2, 150))
    ground = rng.integers(0, 6, num_matches)
    moved = rng.integers(0, num_matches, 10)  # matches in two grounds
    trained = np.sort(rng.integers(0, 7, 60))
    played_in = np.hstack([[match, ground], [moved, (ground[moved] + 1) % 6]])
    edges = {
        HOME: {"edge_index": np.stack([rng.integers(0, 8, num_matches), match])},
        AWAY: {
            "edge_index": np.stack([rng.integers(0, 8, num_matches), match]),
            "time": time + (rng.random(num_matches) < 0.1),  # some are newer than their match
        },
        PLAYED_IN: {"edge_index": played_in},
        LIES_IN: {"edge_index": np.array([range(6), [0, 0, 1, 1, 2, 2]])},
        SEQUEL: {"edge_index": sequel, "time": time[sequel].max(0)},
        TRAINS: {
            "edge_index": np.stack([rng.integers(0, 8, 60), np.arange(60)]),
            "time": trained + (rng.random(60) < 0.1),  # some are newer than their training
        },
    }
    parts = {
        "match": {
            "x": rng.normal(size=(num_matches, 2)),
            "y": y,
            "time": time,
            "timestamp": timestamp,
        },
        "team": {"num_nodes": 8},
        "ground": {"num_nodes": 6},
        "town": {"num_nodes": 3},
        "training": {
            "x": rng.normal(size=(60, 1)),
            "time": trained,
            "timestamp": 10.0 * trained + rng.integers(0, 4, 60),
        },
    }
    parts["match"] |= changes
    return ig.TemporalGraph.hetero(
        nodes=parts, edges=edges, target="match", num_labels=NUM_CLASSES, label_delay=label_delay
    )


def with_outcomes(graph, seed=0):
    """The graph with a column that is known after the match, and not of every match."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(graph.num_nodes, 1)).astype(np.float32)
    values[rng.random(graph.num_nodes) < 0.2] = np.nan
    part = replace(graph.nodes["match"], outcomes=values)
    return graph.with_parts(dict(graph.nodes) | {"match": part}, dict(graph.relations))


def view_of(graph, cutoff=CUTOFF):
    return with_outcomes(graph.encoded()).masked(cutoff)


def columns_of(view, nodes=None):
    """The columns by name, of all rows or of some."""
    nodes = np.arange(view.num_nodes) if nodes is None else nodes
    return dict(zip(history_names(view), history_columns(view, nodes).T, strict=True))


def last_columns(view, nodes):
    """Recent class proportions and those of the last labels, side by side."""
    return np.hstack(recent_and_last_labels(view, nodes))


BOTH = pytest.mark.parametrize("read", [history_columns, last_columns])


# -- the oracle: every definition as a loop


def links(view):
    """By role: the entities that a row reads, and those that it writes to."""
    time, rows = view.time, range(view.num_nodes)

    def entities(triple, end):
        relation = view.relations[triple]
        result = {v: set() for v in rows}
        for edge, pair in enumerate(relation.edge_index.T.tolist()):
            v, entity = pair[end], pair[1 - end]
            if relation.time is None or relation.time[edge] <= time[v]:
                result[v].add(entity)
        return result

    home, away, ground = entities(HOME, 1), entities(AWAY, 1), entities(PLAYED_IN, 0)
    town_of = dict(view.relations[LIES_IN].edge_index.T.tolist())
    town = {v: {town_of[g] for g in ground[v]} for v in rows}
    after, before = entities(SEQUEL, 0), entities(SEQUEL, 1)
    near = {v: {u for u in after[v] | before[v] if time[u] <= time[v]} for v in rows}
    names = {triple: "-".join(triple) for triple in view.relations}
    nothing = {v: set() for v in rows}
    return {
        names[HOME]: (home, home),
        f"{names[HOME]}, earlier {names[AWAY]}": (home, away),
        f"{names[AWAY]}, earlier {names[HOME]}": (away, home),
        names[AWAY]: (away, away),
        names[PLAYED_IN]: (ground, ground),
        f"{names[PLAYED_IN]}, {names[LIES_IN]}": (town, town),
        names[SEQUEL]: (near, {v: {v} for v in rows}),
        # Too many trainings of a team: these paths lead nowhere.
        **{f"{names[triple]}, {names[TRAINS]}": (nothing, nothing) for triple in (HOME, AWAY)},
    }


def writes_before(view, writes, wanted, *, before, labelled):
    """The pairs (row, entity) of some entities that were known before a time."""
    return [
        (u, e)
        for u in range(view.num_nodes)
        for e in writes[u] & wanted
        if view.timestamp[u] + view.label_delay * labelled < before
        and (view.label[u] >= 0 or not labelled)
    ]


def decayed(pairs, value, clock, half_life):
    """Sum and weight; a pair counts less with every later time of its entity."""
    total = weight = 0.0
    for u, e in pairs:
        later = {clock[w] for w, other in pairs if other == e and clock[w] > clock[u]}
        factor = 0.5 ** (len(later) / half_life)
        total += factor * value[u]
        weight += factor
    return total, weight


def last_mean(pairs, value, clock):
    """The mean value at the last time."""
    last = max((clock[u] for u, _ in pairs), default=0)
    return np.mean([value[u] for u, _ in pairs if clock[u] == last] or [0.0])


def span(now, then):
    return NEVER if then is None else np.log1p(now - then)


def running_columns(view, label_time):
    """Log-odds by the running model as of every row's label time."""
    roles = links(view)
    home, away, ground = (roles["-".join(one)][0] for one in (HOME, AWAY, PLAYED_IN))

    def terms(v):
        """Strengths and their weights: the intercept, the entities of a row, and their ratings."""
        result = [("intercept", 1.0)]
        for role, entities in (("home", home), ("away", away), ("ground", ground)):
            weight = 1 / max(len(entities[v]), 1)
            result += [((role, entity), weight) for entity in entities[v]]
        result += [(("rating", team), 1 / len(home[v])) for team in home[v]]
        result += [(("rating", team), -1 / len(away[v])) for team in away[v]]
        return result

    rows = range(view.num_nodes)
    known = view.timestamp + view.label_delay
    result = np.zeros((view.num_nodes, NUM_CLASSES))
    for v in rows:
        strength, variance = {}, {}
        earlier = [u for u in rows if view.label[u] >= 0 and known[u] < label_time[v]]
        for now in sorted({known[u] for u in earlier}):
            errors = {}
            for u in (u for u in earlier if known[u] == now):
                logit = sum(w * strength.get(key, np.zeros(3)) for key, w in terms(u))
                errors[u] = np.eye(3)[view.label[u]] - np.exp(logit) / np.exp(logit).sum()
            precision = {}
            for u in errors:
                for key, weight in terms(u):
                    old = 1 / (variance.get(key, FIRST_VARIANCE) + DRIFT)
                    precision[key] = precision.get(key, old) + weight**2 / 4
            variance |= {key: 1 / value for key, value in precision.items()}
            for u, error in errors.items():
                for key, weight in terms(u):
                    step = variance[key] * weight * error
                    strength[key] = strength.get(key, np.zeros(3)) + step
        result[v] = sum(w * strength.get(key, np.zeros(3)) for key, w in terms(v))
    return {
        f"all rows: log-odds of class {k} by running strengths": result[:, k] - result[:, 0]
        for k in range(1, NUM_CLASSES)
    }


def label_times(view):
    """The time before which every row knows labels."""
    first = {}
    for v in range(view.num_nodes):
        period = min(view.time[v], view.cutoff)
        first[period] = min(first.get(period, np.inf), view.timestamp[v])
    return [first[min(time, view.cutoff)] for time in view.time]


def naive(view):
    """All columns [by name] of all rows."""
    rows = range(view.num_nodes)
    stamp, label = view.timestamp, view.label
    everyone = {v: {0} for v in rows}
    label_time = label_times(view)
    result = running_columns(view, label_time)
    newest_label = [span(stamp[v], label_time[v]) for v in rows]
    result["log time since the newest known label"] = newest_label

    def shares(v, k, before):
        pairs = writes_before(view, everyone, {0}, before=before, labelled=True)
        is_class = (label == k).astype(float)
        sums = [(sum(is_class[u] for u, _ in pairs), len(pairs))]
        sums += [decayed(pairs, is_class, view.time, h) for h in HALF_LIVES]
        return [(total + 1 / NUM_CLASSES) / (weight + 1) for total, weight in sums]

    windows = ["whole past", *(f"half-life {h:g}" for h in HALF_LIVES)]
    excess = {}
    for k in range(1, NUM_CLASSES):
        excess[k] = [(label[v] == k) - shares(v, k, stamp[v])[1] for v in rows]
        by_row = [shares(v, k, label_time[v]) for v in rows]
        for window, values in zip(windows, zip(*by_row, strict=True), strict=True):
            result[f"all rows: proportion of class {k}, {window}"] = values
    for role, (reads, writes) in links(view).items():
        for v in rows:
            one = naive_row(
                view, v, everyone, excess, label_time=label_time[v], wanted=reads[v], writes=writes
            )
            for name, value in one.items():
                result.setdefault(f"{role}: {name}", []).append(value)
    for role, (reads, writes) in training_links(view).items():
        for v in rows:
            for name, value in naive_trainings(view, reads[v], writes, v).items():
                result.setdefault(f"{role}: {name}", []).append(value)
    return result


def naive_row(view, v, everyone, excess, *, label_time, wanted, writes):
    """The columns of one row in one role, which reads the entities `wanted`."""
    stamp = view.timestamp
    windows = ["whole past", *(f"half-life {h:g}" for h in HALF_LIVES)]
    one = {}
    earlier = writes_before(view, writes, wanted, before=stamp[v], labelled=False)
    known = writes_before(view, writes, wanted, before=label_time, labelled=True)
    times = [stamp[u] for u, _ in earlier]
    ones = np.ones(view.num_nodes)
    counts = [len(earlier), *(decayed(earlier, ones, stamp, h)[1] for h in HALF_LIVES)]
    for window, count in zip(windows, counts, strict=True):
        one[f"log earlier rows, {window}"] = np.log1p(count)
    one["log time since the last row"] = span(stamp[v], max(times, default=None))
    one["log time since the first row"] = span(stamp[v], min(times, default=None))
    one["log known labels"] = np.log1p(len(known))
    newest = max((stamp[u] for u, _ in known), default=None)
    one["log time since the last known label"] = span(stamp[v], newest)
    for k, values in excess.items():
        sums = [(sum(values[u] for u, _ in known), len(known))]
        sums += [decayed(known, values, stamp, h) for h in HALF_LIVES]
        for window, (total, weight) in zip(windows, sums, strict=True):
            one[f"excess of class {k}, {window}"] = total / (weight + SHRINKAGE)
        one[f"excess of class {k}, last time"] = last_mean(known, values, stamp)
    for column in range(2):
        x = view.x[:, column].astype(float)
        one |= aggregates(f"feature {column}", earlier, x, stamp, x[v])
    points = view.target_nodes.outcomes[:, 0].astype(float)
    scored = ~np.isnan(points)
    usual = recent_mean(known_rows(view, everyone, {0}, label_time, scored), points, view)
    past = known_rows(view, writes, wanted, label_time, scored)
    one |= aggregates("outcome 0", past, points, stamp, usual)
    return one


def aggregates(name, pairs, value, clock, otherwise):
    """What earlier values say; `otherwise` without any."""
    values = [value[u] for u, _ in pairs] or [otherwise]
    means = dict.fromkeys(HALF_LIVES, otherwise)
    last = otherwise
    if pairs:
        sums = {half_life: decayed(pairs, value, clock, half_life) for half_life in HALF_LIVES}
        means = {half_life: total / weight for half_life, (total, weight) in sums.items()}
        last = last_mean(pairs, value, clock)
    return {
        f"least of {name}": min(values),
        f"largest of {name}": max(values),
        f"last of {name}": last,
        f"deviation of {name}": np.std(values),
        f"mean of {name}, whole past": np.mean(values),
        **{f"mean of {name}, half-life {h:g}": mean for h, mean in means.items()},
    }


def known_rows(view, writes, wanted, before, mask):
    """The pairs (row, entity) of some entities whose outcome was known before a time."""
    known_at = view.timestamp + view.label_delay
    rows = np.flatnonzero(mask & (known_at < before))
    return [(u, e) for u in rows for e in writes[u] & wanted]


def recent_mean(pairs, value, part, half_life=HALF_LIVES[0]):
    """The mean over all rows, of which older periods count less; 0 without any."""
    total, weight = decayed(pairs, value, part.time, half_life)
    return total / (weight or 1.0)


def training_links(view):
    """By role: the teams of a match, and the team of every training that was linked in time."""
    part, relation = view.nodes["training"], view.relations[TRAINS]
    team = {training: set() for training in range(part.num_nodes)}
    for k, (entity, training) in enumerate(relation.edge_index.T.tolist()):
        if relation.time[k] <= part.time[training]:
            team[training].add(entity)
    roles = links(view)
    return {
        f"{name}, earlier {'-'.join(TRAINS)}": (roles[name][0], team)
        for name in ("-".join(HOME), "-".join(AWAY))
    }


def naive_trainings(view, teams, team_of, v):
    """Columns of a match: what the trainings of its teams before it say."""
    part, now = view.nodes["training"], view.timestamp[v]
    before = np.flatnonzero(part.timestamp < now)
    pairs = [(u, e) for u in before for e in team_of[u] & teams]
    times = [part.timestamp[u] for u, _ in pairs]
    ones = np.ones(part.num_nodes)
    counts = [len(pairs), *(decayed(pairs, ones, part.timestamp, h)[1] for h in HALF_LIVES)]
    windows = ["whole past", *(f"half-life {h:g}" for h in HALF_LIVES)]
    columns = {
        f"log earlier rows, {window}": np.log1p(count)
        for window, count in zip(windows, counts, strict=True)
    }
    columns["log time since the last row"] = span(now, max(times, default=None))
    columns["log time since the first row"] = span(now, min(times, default=None))
    x = part.x[:, 0].astype(float)
    usual = recent_mean([(u, 0) for u in before], x, part)
    return columns | aggregates("feature 0", pairs, x, part.timestamp, usual)


@pytest.mark.parametrize(("seed", "delay"), [(0, 0.0), (1, 0.0), (2, 9.0)])
def test_columns_are_those_of_the_loops(seed, delay):
    view = view_of(events(seed, label_delay=delay))
    result, expected = columns_of(view), naive(view)
    assert result.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(result[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("seed", "delay"), [(0, 0.0), (1, 0.0), (2, 9.0)])
def test_last_labels_are_those_of_the_loops(seed, delay):
    view = view_of(events(seed, label_delay=delay))
    columns = columns_of(view)
    names = [f"all rows: proportion of class {k}, half-life 3" for k in (1, 2)]
    others = np.stack([columns[name] for name in names], axis=1)
    expected_recent = np.column_stack([1 - others.sum(1), others])
    label_time, roles = label_times(view), links(view)
    expected_last = expected_recent.copy()
    for v in range(view.num_nodes):
        proportions = []
        for triple in (HOME, AWAY, PLAYED_IN):
            reads, writes = roles["-".join(triple)]
            for entity in reads[v]:
                pairs = writes_before(view, writes, {entity}, before=label_time[v], labelled=True)
                newest = max((view.timestamp[u] for u, _ in pairs), default=None)
                labels = [view.label[u] for u, _ in pairs if view.timestamp[u] == newest]
                if labels:
                    proportions.append(np.bincount(labels, minlength=3) / len(labels))
        if proportions:
            expected_last[v] = np.mean(proportions, axis=0)
    recent, last = recent_and_last_labels(view, np.arange(view.num_nodes))
    np.testing.assert_allclose(recent, expected_recent, atol=1e-6)
    np.testing.assert_allclose(last, expected_last, atol=1e-6)
    assert np.abs(last - recent).max() > 0.3


@BOTH
def test_some_rows_are_rows_of_all(read):
    view = view_of(events())
    nodes = np.array([17, 3, 80, 17])
    assert np.array_equal(read(view, nodes), read(view, np.arange(90))[nodes])


# -- values that are not known yet


def changed_rows(view, rows, seed=1):
    """The view with other features, labels and edges of some rows."""
    rng = np.random.default_rng(seed)
    part = view.nodes["match"]
    x, y, outcomes = (np.array(values) for values in (part.x, part.y, part.outcomes))
    x[rows] = rng.normal(size=(len(rows), 2))
    outcomes[rows] = np.where(
        view.time[rows, None] < view.cutoff, rng.random((len(rows), 1)), np.nan
    )
    y[rows] = np.where(view.time[rows] < view.cutoff, rng.integers(0, 3, len(rows)), -1)
    relations = dict(view.relations)
    for triple, end in ((HOME, 1), (AWAY, 1), (PLAYED_IN, 0)):
        relation = relations[triple]
        index = np.array(relation.edge_index)
        moved = np.isin(index[end], rows)
        index[1 - end, moved] = rng.integers(0, 6, moved.sum())
        relations[triple] = replace(relation, edge_index=index)
    nodes = dict(view.nodes) | {"match": replace(part, features=x, y=y, outcomes=outcomes)}
    return view.with_parts(nodes, relations)


@BOTH
@pytest.mark.parametrize("delay", [0.0, 9.0])
def test_later_and_simultaneous_rows_change_no_bit(delay, read):
    view = view_of(events(label_delay=delay))
    for t in np.unique(view.timestamp):
        now = np.flatnonzero(view.timestamp == t)
        for v in now[:2]:
            others = np.flatnonzero((view.timestamp >= t) & (np.arange(view.num_nodes) != v))
            before = read(view, np.array([v]))
            after = read(changed_rows(view, others), np.array([v]))
            assert np.array_equal(before, after), (t, v)
    # A check of the check: earlier rows do change something.
    assert not np.array_equal(before, read(changed_rows(view, np.arange(50)), now[:1]))


@BOTH
def test_labels_from_the_cutoff_on_change_no_bit(read):
    graph = events()
    y = np.where(graph.time >= CUTOFF, (graph.y + 1) % 3, graph.y)
    views = [view_of(graph), view_of(events(y=y))]
    assert np.array_equal(*(read(view, np.arange(90)) for view in views))


@BOTH
def test_labels_wait_for_their_delay(read):
    """A label that becomes known exactly when labels are read is not known yet."""
    graph = events()
    target = np.flatnonzero(graph.time >= CUTOFF)[:1]
    begin = graph.timestamp[graph.time >= CUTOFF].min()
    row = np.flatnonzero((graph.y >= 0) & (graph.time < CUTOFF))[-1]
    wait = begin - graph.timestamp[row]
    y = np.array(graph.y)
    y[row] = (y[row] + 1) % 3
    for delay, is_blind in ((wait, True), (wait - 0.5, False)):
        views = [view_of(events(y=each, label_delay=delay)) for each in (graph.y, y)]
        result = [read(view, target) for view in views]
        assert np.array_equal(*result) == is_blind


@BOTH
def test_a_training_row_knows_as_little_of_its_period_as_a_target(read):
    view = view_of(events())
    is_second = view.time == 2
    y = np.where(is_second, (view.y + 1) % 3, view.y)
    rows = np.flatnonzero(is_second)
    other = view.with_labels(y)
    assert np.array_equal(read(view, rows), read(other, rows))


def test_rows_of_other_types_without_an_exact_time_come_when_their_period_is_over():
    view = view_of(events())
    part = view.nodes["training"]
    period_begins = [view.timestamp[view.time >= t].min(initial=np.inf) for t in range(8)]
    names = [name for name in history_names(view) if "earlier team-does-training" in name]
    columns = []
    for timestamp in (None, np.array(period_begins)[part.time + 1]):
        nodes = dict(view.nodes) | {"training": replace(part, timestamp=timestamp)}
        by_name = columns_of(view.with_parts(nodes, dict(view.relations)))
        columns.append([by_name[name] for name in names])
    assert len(names) > 10
    assert np.array_equal(*columns)


def test_labels_that_are_not_known_at_the_cutoff_are_hidden():
    """In a back-test, labels arrive as late as they do in the present."""
    graph = events(num_matches=300)
    late = events(num_matches=300, label_delay=12.0)
    begin = graph.timestamp[graph.time >= CUTOFF].min()
    is_late = (graph.time < CUTOFF) & (graph.timestamp + 12 >= begin)
    views = [one.masked(CUTOFF) for one in (graph, late)]
    assert (views[0].y[is_late] >= 0).any()
    assert (views[1].y[is_late] < 0).all()
    assert np.array_equal(views[0].y[~is_late], views[1].y[~is_late])
    # The fold of a past window hides those before it as well.
    window = windows(views[1], 1)[0]
    fold = fold_of(views[1], window)
    first = graph.timestamp[graph.time >= window.first].min()
    is_known = fold.graph.y >= 0
    assert is_known.any()
    assert (fold.graph.timestamp[is_known] + 12 < first).all()
    y = np.where(graph.timestamp + 12 >= first, (graph.y + 1) % 3, graph.y)
    other = events(num_matches=300, label_delay=12.0, y=y).masked(CUTOFF)
    assert np.array_equal(prior_before(views[1], window), prior_before(other, window))
    assert np.array_equal(prior_drift(views[1], window.first), prior_drift(other, window.first))
    with pytest.raises(InputError, match="no node before cutoff=1 has a label"):
        late.masked(1)


def test_a_delay_counts_from_the_date_to_the_period():
    """Labels of the last 30 days of a year are not known when the next one begins."""
    table = {
        "date": np.datetime64("2020-01-01") + np.arange(0, 1400, 7),
        "user_id": np.arange(200) % 20,
        "label": np.where(np.arange(200) % 3, "a", "b"),
    }
    graph = ig.from_tables(table, label="label", period="year", label_delay=30, quiet=True)
    view = graph.masked("2022")
    hidden = table["date"][view.y < 0]
    assert hidden.min() == np.datetime64("2021-12-08")  # known on 7 January
    assert table["date"][view.y >= 0].max() == np.datetime64("2021-12-01")


def test_predictions_of_some_nodes_wait_for_the_delay_as_those_of_all_do():
    """Exact times without periods: a neighbourhood knows when a period of the graph begins."""
    graph = events(num_matches=200, label_delay=12.0)
    model = Pipeline("sehgnn", "labels", cutoff=CUTOFF, epochs=3).fit(graph)
    targets = np.flatnonzero(graph.targets(CUTOFF))
    together = model.predict_proba(graph)
    for k in range(0, len(targets), 7):
        alone = model.predict_proba(graph, nodes=targets[[k]])
        np.testing.assert_allclose(alone, together[[k]], atol=1e-5)


def test_label_hops_of_snapshots_wait_for_the_delay():
    """A training row reads labels as late as a target does."""
    graph = events(num_matches=300, label_delay=12.0)
    first = graph.timestamp[graph.time == 4].min()
    is_unknown = (graph.timestamp + 12 >= first) & (graph.time < 4)
    y = np.where(is_unknown, (graph.y + 1) % 3, graph.y)
    rows = np.flatnonzero(graph.time == 4)
    hops = []
    for one in (graph, events(num_matches=300, label_delay=12.0, y=y)):
        pipeline = Pipeline("sehgnn", "snapshot+labels", cutoff=6)
        inputs = pipeline.inputs(one.masked(6))
        _, labels = inputs.model_inputs(Method.parse("snapshot+labels"), 6)
        position = np.searchsorted(inputs.row_nodes, rows)
        hops.append([np.asarray(hop)[position] for hop in labels])
    assert is_unknown.sum() > 20
    assert np.abs(hops[0]).max() > 0
    assert all(map(np.array_equal, *hops))


def test_a_cutoff_is_inferred_from_the_moment_when_the_last_label_was_known():
    graph = events(num_matches=300, label_delay=12.0)
    y = np.where(graph.time < 3, graph.y, -1)
    late = events(num_matches=300, label_delay=12.0, y=y)
    assert late.infer_cutoff() == 4  # times of period 2 end at 23, those of period 4 begin at 40
    assert (late.masked(4).y == y).all()
    assert graph.masked(5).infer_cutoff() == 5  # a view has its own


def test_long_delays_leave_fewer_windows_and_no_validation():
    graph = events(num_matches=300, label_delay=25.0).masked(6)
    for window in windows(graph, 3):
        assert (fold_of(graph, window).graph.y >= 0).sum() >= 20
    for delay in (25.0, 45.0):
        view = events(num_matches=300, label_delay=delay).masked(6)
        assert (view.y >= 0).any()
        Pipeline("trees", "history", cutoff=6).fit(view)


def test_a_month_of_which_the_first_days_are_known_is_no_window():
    """With a delay of 29 days, they would decide the selection and the calibration."""
    date = np.datetime64("2023-01-01") + np.repeat(np.arange(330), 20)
    table = {
        "date": date,
        "card_id": np.arange(len(date)) % 50,
        "label": np.where(np.arange(len(date)) % 3, "a", "b"),
    }
    options = {"label": "label", "period": "month", "quiet": True}
    view = ig.from_tables(table, label_delay=29, **options).masked("2023-11")
    in_october = view.time == view.when("2023-10")
    assert 20 <= view.is_labelled[in_october].sum() < 0.1 * in_october.sum()
    assert [str(one) for one in windows(view, 2)] == ["2023-08", "2023-09"]
    # In a week later, most of a month is known.
    view = ig.from_tables(table, label_delay=7, **options).masked("2023-11")
    assert [str(one) for one in windows(view, 2)] == ["2023-09", "2023-10"]


# -- engines, and graphs with history features


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("trees", "history"),
        ("trees", "features+history"),
        ("trees", "labels+history+recency"),
        ("prior", "last"),
    ],
)
def test_engines_agree_bit_by_bit(model, method, tmp_path):
    graph = events(num_matches=200)
    result = []
    for engine in (Memory(), Disk(tmp_path / "disk", memory="1MB")):
        fitted = Pipeline(model, method, cutoff=CUTOFF, epochs=5).fit(graph, engine=engine)
        result.append(fitted.predict_proba(graph, engine=engine))
    assert np.array_equal(*result)


def test_a_saved_model_reads_the_history_of_a_grown_graph(tmp_path):
    whole = events(num_matches=200)
    past = whole.upto(CUTOFF)
    model = Pipeline("linear", "features+history", cutoff=CUTOFF, epochs=5).fit(past)
    model.save(tmp_path / "model")
    loaded = Pipeline.load(tmp_path / "model")
    before, after = loaded.predict_proba(past), loaded.predict_proba(whole)
    is_old = whole.time[whole.time >= CUTOFF] == CUTOFF
    np.testing.assert_allclose(after[is_old], before, atol=1e-6)


def labels_that_stay(num_rows=600, num_entities=40):
    """Rows of entities that change their class rarely."""
    rng = np.random.default_rng(0)
    time = np.repeat(np.arange(6), num_rows // 6)
    entity = rng.integers(0, num_entities, num_rows)
    current = rng.integers(0, 3, num_entities)
    y = np.where(rng.random(num_rows) < 0.9, current[entity], rng.integers(0, 3, num_rows))
    return ig.TemporalGraph.hetero(
        nodes={"row": {"y": y, "time": time}, "entity": {"num_nodes": num_entities}},
        edges={("entity", "has", "row"): np.stack([entity, np.arange(num_rows)])},
        target="row",
    )


def test_last_labels_are_a_model_that_is_saved_and_explained(tmp_path):
    """Rows have no features: nothing else is read, and predictions are mostly right."""
    graph = labels_that_stay()
    model = Pipeline("prior", "last", cutoff=5, class_weight="balanced").fit(graph)
    probabilities = model.predict_proba(graph)
    truth = graph.y[graph.time >= 5]
    assert (probabilities.argmax(1) == truth).mean() > 0.75
    assert 0.5 < model.fitted.head.last_weight < 0.95
    model.save(tmp_path / "model")
    loaded = Pipeline.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(graph), probabilities)
    with pytest.warns(UserWarning, match="the model uses last"):
        few = loaded.predict_proba(graph, nodes=graph.ids[graph.time >= 5][:3])
    np.testing.assert_allclose(few, probabilities[:3], atol=1e-6)
    explanation = explain(model, graph, np.flatnonzero(graph.time >= 5)[0])
    parts = {part.name: part.contribution for part in explanation.parts}
    assert abs(parts["last labels of entities"]) > 0.1
    difference = explanation.probability - explanation.runner_up_probability
    assert sum(parts.values()) == pytest.approx(difference, abs=1e-5)
    assert all(voice.error < 1e-5 for voice in explanation.voices)


@pytest.mark.parametrize("method", ["labels+last", "last+recency", "pmp+last"])
def test_last_labels_go_with_no_other_part(method):
    with pytest.raises(InputError, match="which replaces all inputs"):
        Pipeline("prior", method).checked()


def test_exact_times_and_delays_are_saved(tmp_path):
    graph = events(label_delay=2.5)
    graph.save(tmp_path / "graph")
    loaded = ig.load(tmp_path / "graph")
    assert loaded.label_delay == 2.5
    assert np.array_equal(loaded.timestamp, graph.timestamp)
    assert np.array_equal(loaded.upto(3).timestamp, graph.timestamp[graph.time <= 3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timestamp": np.zeros(3)}, r"match.timestamp has shape \(3,\) for 90 nodes"),
        ({"timestamp": np.full(90, np.nan)}, "match.timestamp is not finite at node 0"),
        ({"timestamp": -np.arange(90.0)}, "pass timestamps in the order of the times"),
        ({"label_delay": -1}, "label_delay=-1 must be a number of 0 or more"),
    ],
)
def test_wrong_times_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        events(**changes)


def test_a_path_that_fans_out_has_empty_columns():
    """Every ground lies in three towns: the columns stay, so that models of other graphs fit."""
    graph = events()
    every = np.array([np.repeat(range(6), 3), np.tile(range(3), 6)])
    assert every.shape[1] > MOST_FANOUT * 6
    relations = dict(graph.relations)
    relations[LIES_IN] = replace(relations[LIES_IN], edge_index=every)
    view = view_of(graph.with_parts(dict(graph.nodes), relations))
    assert history_names(view) == history_names(view_of(graph))
    assert not columns_of(view)[
        "match-played_in-ground, ground-lies_in-town: log earlier rows, whole past"
    ].any()


def test_only_graphs_of_events_get_it_as_a_first_candidate():
    papers = ig.tsbm(num_nodes=300, num_times=6, num_labels=2, seed=0)
    named = {
        name: [str(one) for one in initial_candidates(graph.masked(CUTOFF))]
        for name, graph in (("events", events(num_matches=200)), ("papers", papers))
    }
    assert "trees:features+history" in named["events"]
    assert not any("history" in name for name in named["papers"])


def test_an_explanation_names_its_columns():
    graph = events(num_matches=200)
    model = Pipeline("trees", "features+history", cutoff=CUTOFF, epochs=20).fit(graph)
    node = np.flatnonzero(graph.time >= CUTOFF)[0]
    names = {feature.name for feature in explain(model, graph, node, most=100).features}
    assert names & set(history_names(view_of(graph)))


def test_tables_keep_exact_times_and_their_delay(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "id,date,label\n"
        + "\n".join(f"{k},2021-{1 + k % 12:02}-{1 + k % 28:02},{k % 2}" for k in range(60))
    )
    (tmp_path / "edges.csv").write_text("source,target\n1,0\n")
    (tmp_path / "graph.toml").write_text(
        'label_delay = 30\nperiod = "quarter"\n[nodes.node]\nfile = "nodes.csv"\n'
        '[edges.to]\nfile = "edges.csv"\n'
    )
    graph = ig.load(tmp_path)
    assert graph.label_delay == 30
    day = (np.datetime64("2021-03-03") - np.datetime64("1970-01-01")).astype(int)
    assert graph.timestamp[graph.ids.tolist().index(2)] == day
    (tmp_path / "graph.toml").write_text(
        (tmp_path / "graph.toml").read_text().replace("= 30", '= "soon"')
    )
    with pytest.raises(InputError, match="label_delay='soon' must be a number of 0 or more"):
        ig.load(tmp_path)


@pytest.mark.parametrize("hours", [1, 2, 5, 8])
def test_a_label_is_not_read_in_the_moment_it_becomes_known(hours):
    """Sums of days and parts of days are rounded, some of them down."""
    rows = 72
    graph = ig.from_tables(
        {
            "id": list(range(rows)),
            "time": [f"2021-06-{1 + k // 24:02d}T{k % 24:02d}:00:00" for k in range(rows)],
            "label": ["xy"[k % 2] for k in range(48)] + [None] * 24,
            "user": ["a"] * rows,
        },
        entities={"user": ["user"]},
        period="hour",
        label_delay=hours / 24,
        quiet=True,
    )
    view = graph.masked("2021-06-03").encoded()
    column = [name.endswith("log known labels") for name in history_names(view)].index(True)
    nodes = np.arange(10, 48)
    known = np.expm1(history_columns(view, nodes)[:, column]).round()
    assert (known == nodes - hours).all()


def test_rows_from_the_cutoff_on_do_not_decide_about_hubs():
    """Many links that come later switch off no column of past rows."""

    def columns(num_later):
        link_time = np.r_[np.zeros(2, int), np.full(num_later, 3)]
        graph = ig.TemporalGraph.hetero(
            nodes={
                "event": {"y": np.arange(8) % 2, "time": np.repeat(np.arange(4), 2)},
                "user": {"num_nodes": 2},
                "city": {"num_nodes": num_later + 2},
            },
            edges={
                ("user", "does", "event"): np.stack([np.arange(8) % 2, np.arange(8)]),
                ("user", "lives_in", "city"): {
                    "edge_index": np.stack([np.arange(num_later + 2) % 2, range(num_later + 2)]),
                    "time": link_time,
                },
            },
            target="event",
        )
        return history_columns(graph.masked(3), np.arange(2, 6))

    assert np.array_equal(columns(0), columns(2 * int(MOST_FANOUT) + 4))


@pytest.mark.parametrize("draw", [matches, ratings])
def test_drawn_tables_have_a_history_that_predicts(draw):
    """Of three classes of similar size, the log-loss of a guess is about log 3."""
    losses = log_losses(draw(0), "trees", "history", num_folds=2)
    assert len(losses) == 2
    assert max(losses) < np.log(3)
