"""A single table of events: entities without a table, their history, and a whole run."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

import impact_gnn as ig
from commands import here
from impact_gnn.checks import InputError
from impact_gnn.data.files import convert_graph
from impact_gnn.estimators import Pipeline
from impact_gnn.propagation.history import history_columns, history_names

DAYS = pd.date_range("2018-01-01", periods=60)


def football(num_teams=16, years=7, rounds=25, seed=0):
    """Matches of teams whose strengths are random walks."""
    rng = np.random.default_rng(seed)
    strength = rng.normal(0, 0.9, num_teams)
    rows = []
    for year in range(2010, 2010 + years):
        for day in range(rounds):
            strength = strength + rng.normal(0, 0.1, num_teams)
            for home, away in rng.permutation(num_teams).reshape(-1, 2):
                gap = strength[home] - strength[away] + 0.3 + rng.logistic()
                row = {
                    "date": np.datetime64(f"{year}-02-01") + 10 * day,
                    "home_team": f"team {home}",
                    "away_team": f"team {away}",
                    "attendance": int(rng.integers(0, 60_000)),
                    "win": ["no", "yes"][int(gap > 0)],
                }
                rows.append(row)
    return pd.DataFrame(rows)


def ratings(num_users=250, num_movies=80, count=6000, seed=0):
    """Ratings of users who come and go, of movies whose appeal drifts; tastes become stricter."""
    rng = np.random.default_rng(seed)
    arrival = rng.uniform(-0.4, 0.9, num_users)
    user = rng.integers(0, num_users, count)
    movie = (num_movies * rng.random(count) ** 2).astype(int)
    time = arrival[user].clip(0) + rng.uniform(0, 0.35, count)
    mildness, appeal, drift = rng.normal(size=(3, max(num_users, num_movies)))
    liking = mildness[user] + appeal[movie] + drift[movie] * time + 0.7 - time
    table = {
        "userId": user,
        "movieId": movie,
        "rating": np.where(rng.logistic(size=count) < liking, 5, 2),
        "timestamp": (1.5e9 + time * 4 * 365 * 86_400).astype(int),
    }
    return pd.DataFrame(table)[time < 1]


def trust(count=900, seed=0):
    """Trust between users: two columns of one kind of entity, and a time in seconds."""
    rng = np.random.default_rng(seed)
    table = {
        "source": rng.integers(0, 60, count),
        "target": rng.integers(0, 60, count),
        "rating": rng.integers(-3, 4, count),
        "time": 1.3e9 + np.sort(rng.random(count)) * 1e8,
    }
    return pd.DataFrame(table)


def payments(count=900, seed=0):
    rng = np.random.default_rng(seed)
    table = {
        "payment_id": range(count),
        "account_id": [f"A{k}" for k in rng.integers(0, 40, count)],
        "merchant": rng.integers(0, 20, count),
        "amount": rng.integers(1, 500, count),
        "age": rng.integers(18, 80, count),
        "country": rng.choice(["FR", "GB", "IT"], count),
        "street": [f"street {k}" for k in rng.integers(0, 90, count)],
        "when": pd.date_range("2020-01-01", periods=count, freq="25h"),
    }
    return pd.DataFrame(table)


def relations_of(graph):
    return {"-".join(triple): part.num_edges for triple, part in graph.relations.items()}


TABLES = {
    "ratings": (
        ratings(),
        "rating",
        {"user-rating_userId-rating", "movie-rating_movieId-rating"},
        {"rating": "number"},
    ),
    "matches": (
        football(),
        "match",
        {"team-match_home_team-match", "team-match_away_team-match"},
        {"attendance": "number", "win": "category"},
    ),
    "trusts": (
        trust(),
        "trust",
        {"entity-trust_source-trust", "entity-trust_target-trust"},
        {"rating": "number"},
    ),
    "payments": (
        payments(),
        "payment",
        {
            "account-payment_account_id-payment",
            "merchant-payment_merchant-payment",
            "street-payment_street-payment",
        },
        {"amount": "number", "age": "number", "country": "category"},
    ),
}


@pytest.fixture
def folder(tmp_path, request):
    """A folder with one table and nothing else."""
    TABLES[request.param][0].to_csv(tmp_path / f"{request.param}.csv", index=False)
    return tmp_path


@pytest.mark.parametrize(("folder", "name"), [(name, name) for name in TABLES], indirect=["folder"])
def test_one_table_is_a_graph(folder, name):
    table, target, relations, features = TABLES[name]
    graph = ig.load(folder)
    assert graph.target == target
    assert relations_of(graph) == dict.fromkeys(relations, len(table))
    assert graph.nodes[target].columns.kinds == features
    assert here("init", folder).exit_code == 0
    again = ig.load(folder)
    assert repr(again) == repr(graph)
    checked = here("check", folder)
    assert checked.exit_code == 0, checked.output
    assert "values of" in checked.stdout


@pytest.mark.parametrize("folder", ["matches"], indirect=True)
def test_two_roles_are_one_entity_unless_the_user_says_otherwise(folder):
    graph = ig.load(folder)
    table = TABLES["matches"][0]
    edges = graph.relations["team", "match_away_team", "match"].edge_index
    ids = graph.nodes["team"].ids
    away = dict(zip(graph.ids[edges[1]].tolist(), ids[edges[0]].tolist(), strict=True))
    assert away == dict(enumerate(table.away_team))
    assert graph.nodes["team"].num_nodes == 16
    here("init", folder)
    toml = folder / "graph.toml"
    text = toml.read_text()
    joint = 'values_of = ["home_team", "away_team"]'
    assert joint in text
    toml.write_text(text.replace(joint, 'values_of = ["home_team"]'))
    assert ig.load(folder).nodes["team"].num_nodes == table.home_team.nunique()
    toml.write_text(text.replace(joint, "values_of = []"))
    with pytest.raises(InputError, match=r"values_of=\[\] should be a list of columns"):
        ig.load(folder)
    toml.write_text(text.replace(joint, 'values_of = ["home"]'))
    with pytest.raises(InputError, match=r"matches\.csv has no column 'home'"):
        ig.load(folder)


@pytest.mark.parametrize("folder", ["ratings"], indirect=True)
def test_in_pieces_it_is_the_same_graph(folder, tmp_path):
    whole = convert_graph(folder, tmp_path / "whole").graph
    pieces = convert_graph(folder, tmp_path / "pieces", memory=1).graph
    assert relations_of(whole) == relations_of(pieces)
    for triple, relation in whole.relations.items():
        assert np.array_equal(relation.edge_index, pieces.relations[triple].edge_index)
    assert np.array_equal(whole.timestamp, pieces.timestamp)


def test_frames_of_events_need_no_edges():
    table = football()
    graph = ig.from_tables(table, label="win", quiet=True)
    assert set(relations_of(graph)) == {"team-event_home_team-event", "team-event_away_team-event"}
    entities = {"host": ["home_team"], "guest": ["away_team"]}
    apart = ig.from_tables(table, entities=entities, target="match", label="win", quiet=True)
    assert set(relations_of(apart)) == {"host-match_home_team-match", "guest-match_away_team-match"}
    assert apart.label_names == ("no", "yes")
    with pytest.raises(InputError, match="has no column 'nobody'"):
        ig.from_tables(table, entities={"host": ["nobody"]}, quiet=True)
    with pytest.raises(InputError, match="was recognised; pass edges"):
        ig.from_tables(table[["date", "attendance"]], quiet=True)
    with pytest.raises(InputError, match="leave out edges"):
        ig.from_tables(table, {"source": [0], "target": [1]}, entities=entities, quiet=True)


def test_frames_with_foreign_keys_need_no_edges():
    table = football()
    teams = pd.DataFrame({"team_id": table.home_team.unique(), "founded": range(16)})
    table = table.rename(columns={"home_team": "team_id", "away_team": "guest_id"})
    graph = ig.from_tables(
        {"match": table.assign(match_id=range(len(table))), "team": teams}, label="win", quiet=True
    )
    assert graph.target == "match"
    assert set(relations_of(graph)) == {"team-match_team_id-match", "guest-match_guest_id-match"}
    assert graph.label_names == ("no", "yes")


def visits(**columns):
    """Visits of five users, without a label."""
    table = {"userId": np.arange(60) % 5, "when": DAYS, "spent": np.linspace(0, 1, 60)}
    return pd.DataFrame(table | columns)


@pytest.mark.parametrize(
    ("text", "example"),
    [
        (DAYS.strftime("%m/%d/%Y"), "'01/01/2018' in row 1"),
        (DAYS.strftime("%m/%d/%Y %I:%M %p"), "'01/01/2018 12:00 AM' in row 1"),
        (DAYS.strftime("%d-%b-%y"), "'01-Jan-18' in row 1"),
        (DAYS.strftime("%a %b %d %H:%M:%S +0000 %Y"), "'Mon Jan 01 00:00:00 +0000 2018' in row 1"),
        ([None, *DAYS.astype(str)[1:59], "soon"], "'soon' in row 60"),
    ],
)
def test_dates_that_are_not_read_are_named(text, example, tmp_path):
    table = visits(when=text)
    sentence = f"column 'when' of .* such as {re.escape(example)}; use dates .2021-07-01."
    with pytest.raises(InputError, match=sentence):
        ig.from_tables(table, quiet=True)
    table.to_csv(tmp_path / "visits.csv", index=False)
    for command in ("init", "check"):
        output = " ".join(here(command, tmp_path).output.split())
        assert re.search(sentence, output)


def test_readable_dates_are_not_named():
    """What is missing are entities; a birthday may have gaps."""
    with pytest.raises(InputError, match="was recognised; pass edges"):
        ig.from_tables(pd.DataFrame(), quiet=True)
    table = visits(born=[None, *DAYS.astype(str)[1:]]).drop(columns=["when", "userId"])
    with pytest.raises(InputError, match="was recognised; pass edges"):
        ig.from_tables(table, quiet=True)


def test_a_header_that_is_missing_is_named(tmp_path):
    number = np.arange(60)
    table = pd.DataFrame({0: number % 7, 1: number % 5 + 1, 2: 1289241911.5 + number * 1e5})
    file = tmp_path / "trust.csv"
    table.to_csv(file, index=False, header=False)
    sentence = "all column names of .* are numbers .*, so its header may be missing; name the"
    with pytest.raises(InputError, match=sentence):
        ig.load(tmp_path)
    with pytest.raises(InputError, match=sentence):
        ig.from_tables(table, quiet=True)
    file.write_text(f"7,7,1300000000\n{file.read_text()}")
    with pytest.raises(
        InputError, match="duplicate column names 7; rename them, or write a header"
    ):
        ig.load(tmp_path)


@pytest.mark.parametrize("role", ["id", "time", "label"])
def test_numbers_that_name_columns_are_refused(role):
    """As `read_csv(header=None)` names columns; 0 is one of them, and not "no such column"."""
    table = visits().set_axis(range(3), axis=1)
    for number in (0, 2):
        with pytest.raises(InputError, match=f"no column {number}; .* as text in quotes"):
            ig.from_tables(table, quiet=True, **{role: number})
    with pytest.raises(InputError, match="all column names of visit are numbers"):
        ig.from_tables({"visit": table, "other": table}, quiet=True, **{role: 2})
    graph = ig.from_tables(table, time="1", entities={"user": ["0"]}, quiet=True)
    assert set(graph.nodes) == {"event", "user"}


def test_columns_of_two_values_may_be_the_label(tmp_path):
    rng = np.random.default_rng(0)
    is_fraud = rng.integers(0, 2, 60)
    table = visits(is_fraud=is_fraud, paid=is_fraud > 0, mood=rng.choice(["bad", "good"], 60))
    table.to_csv(tmp_path / "visits.csv", index=False)
    assert here("init", tmp_path).exit_code == 0
    declared = tmp_path / "graph.toml"
    text = declared.read_text()
    assert 'label = ""  # none; it may be is_fraud or paid or mood\n' in text
    checked = here("check", tmp_path)
    assert checked.exit_code == 0
    assert "  label: none; set label=..., or label = ... in graph.toml\n" in checked.output
    run = " ".join(here("run", tmp_path, "--out", tmp_path / "run").output.split())
    assert "no cutoff can be inferred; pass labels for the past: set label=..., or label" in run
    text = text.replace('label = ""', 'label = "is_fraud"')
    declared.write_text(text)
    sentence = (
        r"column is_fraud of visits\.csv has two roles, label and number .of columns.; use it"
    )
    with pytest.raises(InputError, match=sentence):
        ig.load(tmp_path)
    declared.write_text(text.replace('"is_fraud" = "number"\n', ""))
    assert ig.load(tmp_path).y.tolist() == is_fraud.tolist()
    assert "label: none" not in here("check", tmp_path).output


def test_a_column_that_becomes_a_relation_says_so(capsys):
    table = visits(where=np.arange(60) % 4)
    ig.from_tables(table, columns={"where": "ignore"})
    notes = capsys.readouterr().out
    assert "  userId: ignored, it becomes a relation to user\n" in notes
    assert "  where: ignored, as declared\n" in notes
    users = pd.DataFrame({"user_id": range(5), "age": range(5)})
    ig.from_tables({"visit": table, "user": users}, label="where")
    assert "  userId: ignored, it becomes a relation to user\n" in capsys.readouterr().out


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("form", [dict, lambda frame: {name: [*frame[name]] for name in frame}])
def test_missing_times_of_a_mapping_are_named(form, zone):
    table = visits(when=DAYS.tz_localize(zone).where(np.arange(60) != 5))
    sentence = "column 'when' of nodes is empty in 1 rows, first in row 6; fill it in, or remove"
    for nodes in (table, form(table)):
        with pytest.raises(InputError, match=sentence):
            ig.from_tables(nodes, time="when", quiet=True)


def test_what_names_nothing_stays_a_feature():
    """Pairs of yes and no, a label of many classes; two columns of one stem are two types."""
    rng = np.random.default_rng(0)
    table = {
        "customer": rng.integers(0, 50, 900),
        "customer_id": rng.integers(1000, 1030, 900),
        "paid_flag": rng.choice(["yes", "no"], 900),
        "sent_flag": rng.choice(["yes", "no"], 900),
        "home_score": rng.integers(0, 9, 900),
        "away_score": rng.integers(0, 9, 900),
        "class": [f"class {k}" for k in rng.integers(0, 60, 900)],
        "year": rng.integers(2010, 2020, 900),
    }
    graph = ig.from_tables(table, quiet=True)
    assert {kind: part.num_nodes for kind, part in graph.nodes.items()} == {
        "event": 900,
        "customer": 50,
        "customer_id": 30,
    }
    features = {"paid_flag", "sent_flag", "home_score", "away_score"}
    assert set(graph.nodes["event"].columns.kinds) == features
    assert graph.num_labels == 60


@pytest.mark.parametrize("form", ["frame", "file"])
def test_gaps_in_one_of_two_roles_change_no_entity(form, tmp_path):
    """Pandas makes floats of the whole numbers of that column."""
    table = trust()
    expected = ig.from_tables(table, label="rating", quiet=True).nodes["entity"].num_nodes
    table["source"] = table.source.astype(float)
    table.loc[:99, "source"] = None
    if form == "file":
        (tmp_path / "data").mkdir()
        renamed = table.rename(columns={"rating": "label"})
        renamed.to_csv(tmp_path / "data" / "trusts.csv", index=False)
        graph = ig.load(tmp_path / "data")
    else:
        graph = ig.from_tables(table, label="rating", quiet=True)
    assert graph.nodes["entity"].num_nodes <= expected
    assert sorted(relations_of(graph).values()) == [len(table) - 100, len(table)]


def test_missing_keys_are_no_edges():
    table = trust()
    table.loc[:99, "source"] = None
    table["source"] = table.source.astype("Int64")
    graph = ig.from_tables(table, label="rating", quiet=True)
    counts = relations_of(graph)
    assert counts["entity-event_source-event"] == len(table) - 100
    assert counts["entity-event_target-event"] == len(table)


EVENTS = {
    "football": (football(), {"label": "win", "period": "year"}, "2015"),
    "ratings": (ratings(), {"label": "rating", "period": "quarter"}, "2021-01-01"),
}


@pytest.mark.parametrize("name", EVENTS)
def test_history_predicts_events_better_than_neighbours_do(name):
    """On the last fold before the cutoff, by log-loss; nothing after the cutoff is read."""
    table, roles, cutoff = EVENTS[name]
    graph = ig.from_tables(table, quiet=True, **roles)
    targets = graph.time >= graph.when(cutoff)
    losses = {}
    for method in ("plain", "labels", "history"):
        model = Pipeline("trees", method, cutoff=cutoff).fit(graph)
        losses[method] = log_loss(graph.y[targets], model.predict_proba(graph), labels=[0, 1])
    share = np.bincount(graph.y[~targets]) / (~targets).sum()
    losses["prior"] = -np.log(share[graph.y[targets]]).mean()
    assert losses["history"] < 0.98 * min(losses["plain"], losses["labels"], losses["prior"])


@pytest.mark.usefixtures("without_page")
def test_a_run_on_one_table_selects_history(tmp_path):
    graph = ig.from_tables(football(), label="win", period="year", quiet=True)
    candidates = ["trees:plain", "trees:history", "trees:labels"]
    summary = ig.run(
        graph, tmp_path / "out", cutoff="2015", candidates=candidates, folds=2, seeds=1
    )
    assert "history" in str(summary.choice)


def payments(seed=0, last=2020):
    """Accounts, and payments between them; amounts tell the class of who is paid.

    Amounts of payments to or from accounts of `last` or later are drawn by the seed.
    """
    rng = np.random.default_rng(0)
    year = np.sort(rng.integers(2012, 2020, 300))
    label = rng.integers(0, 2, 300)
    ends = rng.integers(0, 300, (2, 2500))
    amount = rng.normal(size=2500) + 2 * label[ends[1]]
    is_late = year[ends].max(0) >= last
    other = np.random.default_rng(seed).normal(size=2500)
    accounts = {"id": np.arange(300), "time": year, "label": label, "size": rng.normal(size=300)}
    edges = {
        "source": ends[0],
        "target": ends[1],
        "amount": np.where(is_late, other, amount),
        "card": np.where(is_late & (seed > 0), "other", rng.choice(["red", "blue"], 2500)),
    }
    return accounts, edges


EDGE_COLUMNS = {"amount": "number", "card": "category"}


@pytest.mark.parametrize("model", ["trees", "sign"])
def test_columns_of_edges_are_features_of_all_models(model):
    graph = ig.from_tables(*payments(), edge_columns=EDGE_COLUMNS, quiet=True)
    part = graph.nodes["to_edge"]
    assert part.columns.kinds == EDGE_COLUMNS
    source, target = graph.relations["node", "to", "node"].edge_index
    assert sorted(part.time) == sorted(np.maximum(graph.time[source], graph.time[target]))
    scores = [
        ig.Pipeline(model, "plain", cutoff=2018).fit(one).score(one)
        for one in (ig.from_tables(*payments(), quiet=True), graph)
    ]
    assert scores[0] < 0.7 < 0.85 < scores[1]


def test_columns_of_later_edges_do_not_reach_the_past():
    """Neither its encoders nor its predictions, though one end of these edges is in the past."""
    first, second = (
        ig.from_tables(*payments(seed, 2017), edge_columns=EDGE_COLUMNS, quiet=True)
        for seed in (1, 2)
    )
    outputs = [graph.masked(2017).nodes["to_edge"].encoder.outputs for graph in (first, second)]
    assert outputs[0] == outputs[1] == ["amount", "card = blue", "card = red"]
    past = [graph.upto(2016) for graph in (first, second)]
    assert past[0].nodes["to_edge"].num_nodes < 2500
    probabilities = [
        ig.Pipeline("trees", "history", cutoff=2016).fit(graph).predict_proba(graph)
        for graph in past
    ]
    assert np.array_equal(*probabilities)


def orders(seed=0, since=2030):
    """Orders of a day at shops, up to two shops each, with an amount for every edge.

    Amounts of orders from `since` on are drawn by the seed.
    """
    rng = np.random.default_rng(0)
    year = np.sort(rng.integers(2012, 2020, 120))
    order = np.r_[np.arange(120), rng.integers(0, 120, 40)]
    amount = rng.normal(size=160)
    other = np.random.default_rng(seed).normal(size=160)
    tables = {
        "order": {"id": np.arange(120), "time": year, "label": rng.integers(0, 2, 120)},
        "shop": {"id": np.arange(5)},
    }
    edges = {
        "source": order,
        "target": rng.integers(0, 5, 160),
        "amount": np.where(year[order] >= since, other, amount),
    }
    return ig.from_tables(
        tables,
        {("order", "at", "shop"): edges},
        target="order",
        edge_columns={"amount": "number"},
        quiet=True,
    )


def history_of(graph, cutoff):
    view = graph.masked(cutoff).encoded()
    columns = history_columns(view, np.arange(view.num_nodes))
    return view, dict(zip(history_names(view), columns.T, strict=True))


def test_history_aggregates_the_columns_of_edges():
    view, columns = history_of(orders(), 2018)
    amount = view.nodes["at_edge"].x[:, 0]
    order, edge = view.relations["order", "at_source", "at_edge"].edge_index
    own = np.array([amount[edge[order == v]].mean() for v in range(120)])
    feature = "order-at_source-at_edge feature 0"
    np.testing.assert_allclose(columns[feature], own, rtol=1e-5, atol=1e-6)
    source, shop = view.relations["order", "at", "shop"].edge_index
    shops = [set(shop[source == v]) for v in range(120)]
    for v in range(0, 120, 7):
        earlier = [
            own[u] for u in range(120) if view.time[u] < view.time[v] for _ in shops[u] & shops[v]
        ]
        mean = columns[f"order-at-shop: mean of {feature}, whole past"][v]
        assert mean == pytest.approx(np.mean(earlier or [own[v]]), rel=1e-5, abs=1e-6)


def test_history_does_not_read_the_columns_of_later_edges():
    (view, columns), (_, others) = (history_of(orders(seed, since=2016), 2016) for seed in (1, 2))
    is_past = view.time < 2016
    differ = [name for name, values in columns.items() if (values != others[name]).any()]
    assert differ
    for name, values in columns.items():
        assert np.array_equal(values[is_past], others[name][is_past]), name


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"nobody": "number"}, "edges has no column 'nobody'"),
        ({"amount": "big"}, "the kind of column 'amount'='big' is not valid"),
        (["amount"], "should be a mapping from column name to kind"),
    ],
)
def test_columns_of_edges_that_cannot_be(columns, sentence):
    with pytest.raises(InputError, match=sentence):
        ig.from_tables(*payments(), edge_columns=columns, quiet=True)


def test_columns_of_edges_need_a_name_of_their_own():
    accounts, edges = payments()
    tables = {"account": accounts, "bank": {"id": range(300)}}
    relations = {("account", "pays", "account"): edges, ("bank", "pays", "account"): edges}
    with pytest.raises(InputError, match="become the type 'pays_edge', which exists"):
        ig.from_tables(tables, relations, edge_columns=EDGE_COLUMNS, quiet=True)
    with pytest.raises(InputError, match="edge_columns has no effect without edges"):
        ig.from_tables(accounts, edge_columns=EDGE_COLUMNS, quiet=True)


def test_a_file_of_events_may_have_other_types_and_columns_of_edges(tmp_path):
    (tmp_path / "events.csv").write_text(
        "user,price,year,label\n" + "".join(f"{k % 4},{k},{2000 + k},{k % 2}\n" for k in range(20))
    )
    toml = """
        target = "event"
        [nodes.event]
        file = "events.csv"
        id = "row number"
        [nodes.price]
        file = "events"
        id = "price"
        [edges.costs]
        file = "events"
        source = "price"
        source_type = "price"
        target = "row number"
        target_type = "event"
        columns = {user = "category"}
    """
    (tmp_path / "graph.toml").write_text(toml)
    graph = ig.load(tmp_path)
    assert {kind: part.num_nodes for kind, part in graph.nodes.items()} == {
        "event": 20,
        "price": 20,
        "costs_edge": 20,
    }


def test_the_only_date_of_edges_is_their_time():
    """Also under another name: a message of 2019 is not known in 2017."""
    users = {"id": range(6), "joined": [f"{2015 + k}-01-01" for k in range(6)], "label": [0, 1] * 3}
    messages = {"source": [0, 1, 2], "target": [1, 0, 1], "sent_at": ["2019-01-02"] * 3}
    graph = ig.from_tables(users, messages, period="year", quiet=True)
    times = graph.relations["node", "to", "node"].time
    assert [graph.name_of(int(time)) for time in times] == ["2019"] * 3
    graph = ig.from_tables(users, messages, edge_time="", quiet=True)
    assert graph.relations["node", "to", "node"].time is None
    years = {**users, "joined": range(2015, 2021)}
    with pytest.raises(InputError, match="or no time there"):
        ig.from_tables(years, messages, time="joined", quiet=True)


def test_rows_without_a_time_come_after_all_that_they_refer_to():
    """A visit of a patient of 2012 to a doctor of 2018 is not known in 2015."""
    rng = np.random.default_rng(0)
    tables = {
        "doctor": {"doctor_id": np.arange(8), "year": 2012 + np.arange(8)},
        "patient": {
            "patient_id": np.arange(80),
            "year": 2012 + np.arange(80) // 10,
            "label": rng.integers(0, 2, 80),
        },
        "visit": {
            "visit_id": np.arange(300),
            "patient_id": rng.integers(0, 80, 300),
            "doctor_id": rng.integers(0, 8, 300),
            "price": rng.normal(size=300),
        },
    }
    graph = ig.from_tables(tables, quiet=True)
    visit = tables["visit"]
    latest = 2012 + np.maximum(visit["patient_id"] // 10, visit["doctor_id"])
    assert np.array_equal(graph.nodes["visit"].time, latest)
    assert graph.upto(2015).nodes["visit"].num_nodes == (latest <= 2015).sum()
