"""Outcomes: columns that are known only after the event, which history alone reads, and later."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

import impact_gnn as ig
from commands import here
from impact_gnn.backtesting.folds import fold_of, windows
from impact_gnn.checks import InputError
from impact_gnn.data.files import convert_graph
from impact_gnn.estimators import Pipeline
from impact_gnn.propagation.history import history_columns, history_names

CUTOFF = "2014"
KINDS = {"margin": "outcome", "stage": "outcome", "referee": "outcome"}


def matches(num_teams=40, years=6, rounds=6, seed=0):
    """Matches whose label is seldom the stronger team; the margin tells strength."""
    rng = np.random.default_rng(seed)
    strength = rng.normal(size=num_teams)
    rows = []
    for year in range(2010, 2010 + years):
        for day in range(rounds):
            for home, away in rng.permutation(num_teams).reshape(-1, 2):
                margin = strength[home] - strength[away] + 0.3 * rng.normal()
                row = {
                    "date": np.datetime64(f"{year}-02-01") + 10 * day,
                    "home_team": f"team {home}",
                    "away_team": f"team {away}",
                    "attendance": int(rng.integers(0, 60_000)),
                    "margin": round(float(margin), 3),
                    "stage": ["regular", "extra time", "penalties"][int(rng.integers(3))],
                    "referee": f"referee {rng.integers(30)}",
                    "upset": ["no", "yes"][int(margin + rng.logistic() < 0)],
                }
                rows.append(row)
    return pd.DataFrame(rows)


def graph_of(table, **kinds):
    return ig.from_tables(table, label="upset", period="year", columns=KINDS | kinds, quiet=True)


def test_outcomes_are_no_features():
    graph = graph_of(matches()).masked(CUTOFF)
    encoder = graph.target_nodes.encoder
    assert encoder.outputs == ["attendance"]
    assert encoder.outcomes.outputs == [
        "margin",
        "stage = extra time",
        "stage = penalties",
        "stage = regular",
    ]
    assert encoder.dropped == {
        "referee": "an outcome is a number or one of at most 8 values",
    }
    encoded = graph.encoded()
    is_past = graph.time < graph.cutoff
    assert encoded.x.shape[1] == 1
    assert np.isfinite(encoded.target_nodes.outcomes[is_past]).all()
    assert np.isnan(encoded.target_nodes.outcomes[~is_past]).all()
    # A view of an earlier cutoff hides more.
    earlier = encoded.masked("2012").target_nodes.outcomes
    assert np.array_equal(np.isnan(earlier[:, 0]), graph.time >= graph.when("2012"))


def test_outcomes_from_the_cutoff_on_change_no_bit():
    table = matches()
    later = table["date"] >= np.datetime64(CUTOFF)
    other = table.assign(
        margin=np.where(later, 100 * table["margin"], table["margin"]),
        stage=np.where(later, "abandoned", table["stage"]),
    )
    views = [graph_of(one).masked(CUTOFF) for one in (table, other)]
    nodes = np.arange(len(table))
    columns = [history_columns(view.encoded(), nodes) for view in views]
    assert np.array_equal(*columns)
    predicted = [
        Pipeline("trees", "history", cutoff=CUTOFF).fit(view).predict_proba(view) for view in views
    ]
    assert np.array_equal(*predicted)


def test_a_row_does_not_read_its_own_period():
    """Rows of the past read outcomes as of the beginning of their period, as targets do."""
    table = matches()
    now = table["date"].dt.year == 2012
    other = table.assign(margin=np.where(now, -table["margin"], table["margin"]))
    rows = np.flatnonzero(now)
    columns = [
        history_columns(graph_of(one).masked(CUTOFF).encoded(), rows) for one in (table, other)
    ]
    assert np.array_equal(*columns)
    next_year = np.flatnonzero(table["date"].dt.year == 2013)
    columns = [
        history_columns(graph_of(one).masked(CUTOFF).encoded(), next_year) for one in (table, other)
    ]
    assert not np.array_equal(*columns)


def test_outcomes_of_earlier_rows_help():
    """The margin says more about the teams than the label, and as a feature it would be a leak."""
    table = matches()
    losses = []
    for kind in ("outcome", "ignore"):
        graph = graph_of(table, margin=kind)
        model = Pipeline("trees", "history", cutoff=CUTOFF).fit(graph)
        label = graph.label[graph.targets(CUTOFF)]
        losses.append(log_loss(label, model.predict_proba(graph)))
    assert losses[0] < 0.97 * losses[1]


def test_a_saved_model_reads_the_outcomes_of_a_saved_graph(tmp_path):
    table = matches()
    graph = graph_of(table)
    model = Pipeline("trees", "history", cutoff=CUTOFF).fit(graph)
    expected = model.predict_proba(graph)
    model.save(tmp_path / "model")
    graph.save(tmp_path / "graph")
    loaded = Pipeline.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(ig.load(tmp_path / "graph")), expected)
    # The margin is not known yet where the rows are new, but past ones must be there.
    unknown = table.assign(margin=table["margin"].where(table["date"] < CUTOFF))
    assert np.array_equal(loaded.predict_proba(graph_of(unknown)), expected)
    with pytest.raises(InputError, match="margin are missing, but the model needs them"):
        loaded.predict_proba(
            ig.from_tables(table.drop(columns="margin"), label="upset", period="year", quiet=True)
        )


def test_new_rows_have_no_outcome_yet(tmp_path):
    table = matches().assign(id=range(720))
    (tmp_path / "games").mkdir()
    table[:600].to_csv(tmp_path / "games" / "matches.csv", index=False)
    here("init", tmp_path / "games")
    declared = tmp_path / "games" / "graph.toml"
    text = re.sub('label = ""', 'label = "upset"', declared.read_text())
    text = re.sub('"upset" = "category"\n', "", text)
    text = re.sub('"(margin|stage|referee)" = ".*"', r'"\1" = "outcome"', text)
    declared.write_text(re.sub("(?m)^#? ?period = .*$", 'period = "year"', text, count=1))
    checked = here("check", tmp_path / "games")
    assert checked.exit_code == 0, checked.output
    printed = checked.output
    assert "margin: outcome" in printed
    assert "at most 8 values" in printed
    convert_graph(tmp_path / "games", tmp_path / "saved")
    (tmp_path / "new").mkdir()
    new = table[600:].assign(margin="", stage="", referee="", upset="")
    new.to_csv(tmp_path / "new" / "matches.csv", index=False)
    ig.update(tmp_path / "saved", tmp_path / "new")
    whole = ig.load(tmp_path / "saved")
    assert whole.num_nodes == 720
    view = whole.masked("2015").encoded()
    together = graph_of(table).masked("2015").encoded()
    nodes = np.arange(720)
    assert len(history_names(view)) == len(history_names(together))
    np.testing.assert_allclose(history_columns(view, nodes), history_columns(together, nodes))


def with_winner(table):
    """The table with a column that names the winning team, and so the label."""
    home_won = table["upset"] == "no"
    winner = table["home_team"].where(home_won, table["away_team"])
    return table.drop(columns="margin").assign(winning_team=winner)


def test_edges_of_outcomes_are_refused(tmp_path):
    """Models would read the outcome of the row itself as an entity."""
    table = with_winner(matches())
    options = {"label": "upset", "period": "year", "quiet": True}
    columns = {"winning_team": "outcome"}
    roles = {"team": ["home_team", "away_team", "winning_team"]}
    with pytest.raises(InputError, match="is known only after the event, but edges"):
        ig.from_tables(table, columns=columns, entities=roles, **options)
    graph = ig.from_tables(table, columns=columns, **options)
    assert not any("winning" in name for _, name, _ in graph.relations)
    # Nor is it guessed to be a key where tables refer to each other.
    numbers = np.arange(len(table)) % 7
    games = table.assign(id=range(len(table)), how_id=numbers, ground_id=numbers)
    seven = pd.DataFrame({"id": range(7), "size": range(7)})
    tables = {"game": games, "how": seven, "ground": seven}
    names = [
        [name for _, name, _ in ig.from_tables(tables, columns=kinds, **options).relations]
        for kinds in ({}, {"game": {"how_id": "outcome"}})
    ]
    assert "game_how_id" in names[0]
    assert "game_how_id" not in names[1]


def test_outcomes_wait_for_the_delay_of_labels():
    """Neither encoders nor histories know outcomes whose label is not known at the cutoff."""
    table = matches()
    is_late = (table["date"] >= "2013-07-01") & (table["date"] < "2014")
    views = []
    for margin in (table["margin"], table["margin"].where(~is_late, 1e7)):
        one = ig.from_tables(
            table.assign(margin=margin),
            label="upset",
            period="quarter",
            columns=KINDS,
            label_delay=183,
            quiet=True,
        )
        views.append(one.masked("2014-01-01"))
    first, second = (view.encoded() for view in views)
    assert np.array_equal(first.target_nodes.outcomes, second.target_nodes.outcomes, equal_nan=True)
    nodes = np.arange(len(table))
    assert np.array_equal(history_columns(first, nodes), history_columns(second, nodes))
    # So do encoders of a fold.
    folds = [one.masked("2013-04-01").encoded().target_nodes.outcomes for one in views]
    assert np.array_equal(*folds, equal_nan=True)


def test_eight_outcomes_are_read_and_gaps_are_not_known():
    table = matches()
    numbers = {f"number {k}": np.where(np.arange(720) % 5 == k % 5, np.nan, k) for k in range(9)}
    kinds = dict.fromkeys(numbers, "outcome")
    numbers = {name: values + np.arange(720) for name, values in numbers.items()}
    graph = ig.from_tables(
        table.assign(**numbers).drop(columns=[*KINDS]),
        label="upset",
        period="year",
        columns=kinds,
        quiet=True,
    ).masked(CUTOFF)
    encoder = graph.target_nodes.encoder
    assert len(encoder.outcomes.outputs) == 8
    assert encoder.dropped["number 8"] == "only the first 8 outcomes are read"
    outcomes = graph.encoded().target_nodes.outcomes
    is_past = graph.time < graph.cutoff
    assert np.array_equal(np.isnan(outcomes[is_past, 3]), (np.arange(720) % 5 == 3)[is_past])


def test_a_column_that_no_target_has_is_an_outcome(tmp_path):
    """Margins of matches to come are empty; features of past rows would predict the past only."""
    table = matches().drop(columns="referee")
    to_come = table["date"] >= f"{CUTOFF}-01-01"
    # Rare values may be missing in all targets by chance.
    table["injury"] = np.where(np.arange(len(table)) % 50 == 0, "yes", None)
    table.loc[to_come, ["margin", "upset", "injury"]] = None
    graph = ig.from_tables(table, label="upset", period="year", quiet=True)
    view = graph.masked(CUTOFF)
    encoder = view.target_nodes.encoder
    assert "margin" not in encoder.outputs
    assert encoder.outcomes.outputs == ["margin"]
    assert any(name.startswith("injury") for name in [*encoder.outputs, *encoder.dropped])
    (warning,) = view.summary().warnings
    assert "column 'margin': 100% of the rows before the cutoff have it, and none" in warning
    # Those of a fold have one, and do not read it either.
    fold = fold_of(view, windows(view, 1)[0]).graph
    assert "margin" not in fold.target_nodes.encoder.outputs
    model = Pipeline("trees", "features+history").fit(graph)
    model.save(tmp_path / "model")
    again = Pipeline.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(graph), model.predict_proba(graph))
    # What becomes known later in the same rows changes nothing.
    complete = matches().drop(columns="referee").assign(injury=table["injury"])
    later = ig.from_tables(complete, label="upset", period="year", quiet=True)
    np.testing.assert_array_equal(
        again.predict_proba(later, cutoff=CUTOFF), model.predict_proba(graph)
    )


def test_only_the_type_to_classify_has_outcomes():
    table = matches()
    teams = pd.DataFrame({"team": table["home_team"].unique()}).assign(points=1)
    with pytest.raises(InputError, match="only the type to classify, 'match', may have"):
        ig.from_tables(
            {"match": table.assign(match=range(len(table))), "team": teams},
            {("team", "plays", "match"): table.assign(match=range(len(table)))},
            target="match",
            id={"match": "match", "team": "team"},
            label="upset",
            time={"match": "date"},
            columns={"team": {"points": "outcome"}},
            edge_source={("team", "plays", "match"): "home_team"},
            edge_target={("team", "plays", "match"): "match"},
        )


def test_a_few_entities_with_most_rows_have_a_history():
    """Where each row has one entity, entities count by their rows."""
    rng = np.random.default_rng(0)
    user = np.concatenate([rng.integers(0, 20, 400), 20 + np.arange(100)])
    date = np.datetime64("2015-01-01") + rng.permutation(500)
    label = rng.choice(["a", "b"], 500)
    table = pd.DataFrame({"user_id": user, "date": date, "label": label, "size": rng.random(500)})
    assert ig.from_tables(table, label="label", quiet=True).has_entity_history
    rare = table.assign(user_id=np.arange(500) // 2)
    assert not ig.from_tables(
        rare, label="label", entities={"user": ["user_id"]}, quiet=True
    ).has_entity_history
