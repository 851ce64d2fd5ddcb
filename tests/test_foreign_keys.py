"""Tables that refer to each other by ids: relations, times through a key, short rows."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import impact_gnn as ig
from commands import here
from impact_gnn.checks import InputError
from impact_gnn.data.files import convert_graph


@pytest.fixture
def export(tmp_path):
    """A season of races as a database exports it: results have keys and no date of their own."""
    folder = tmp_path / "f1"
    folder.mkdir()
    races = [
        f"{race},{2000 + race // 2},{2000 + race // 2}-0{1 + race % 2}-15" for race in range(12)
    ]
    (folder / "races.csv").write_text("raceId,year,date\n" + "\n".join(races) + "\n")
    drivers = [f"{driver},{['FR', 'GB'][driver % 2]}" for driver in range(12)]
    (folder / "drivers.csv").write_text("driverId,nationality\n" + "\n".join(drivers) + "\n")
    rng = np.random.default_rng(0)
    rows = []
    for race in range(12):
        for driver in range(12):
            label = rng.choice(["yes", "no"], p=[0.4, 0.6])
            if race >= 10:
                label = r"\N"
            rows.append(f"{len(rows)},{race},{driver},{driver + 1},1:34:5{driver},{label}")
    header = "resultId,raceId,driverId,grid,time,dnf\n"
    (folder / "results.csv").write_text(header + "\n".join(rows) + "\n")
    return folder


def check_graph(graph):
    assert graph.target == "result"
    assert {kind: part.num_nodes for kind, part in graph.nodes.items()} == {
        "driver": 12,
        "race": 12,
        "result": 144,
    }
    names = {"-".join(triple): part.num_edges for triple, part in graph.relations.items()}
    assert names == {"race-result_raceId-result": 144, "driver-result_driverId-result": 144}
    assert [graph.name_of(int(time)) for time in graph.times[[0, -1]]] == ["2000", "2005"]
    race = graph.relations["race", "result_raceId", "result"].edge_index
    expected = graph.nodes["race"].time[race[0]]
    assert np.array_equal(graph.time[race[1]], expected)  # the date of the race dates the result
    assert (graph.y < 0).sum() == 24


def test_keys_are_relations_and_date_the_events(export):
    check_graph(ig.load(export))


def test_init_writes_what_was_guessed_and_it_reads_the_same(export):
    assert here("init", export).exit_code == 0
    text = (export / "graph.toml").read_text()
    assert 'time = "raceId.date"' in text
    assert '"driverId" = "ignore"  # names other nodes' in text
    check_graph(ig.load(export))
    assert here("check", export).exit_code == 0


@pytest.mark.parametrize("ending", ["_id", "ID", "_key"])
def test_other_spellings_of_keys(export, ending):
    for file in export.glob("*.csv"):
        for name in ("race", "driver", "result"):
            file.write_text(file.read_text().replace(f"{name}Id", f"{name}{ending}"))
    graph = ig.load(export)
    assert ("race", f"result_race{ending}", "result") in graph.relations


def test_a_column_with_other_values_is_no_key(export):
    """A few ids may be missing in the other table; these rows have no such relation."""
    driver = "driver", "result_driverId", "result"
    drivers = (export / "drivers.csv").read_text().splitlines()
    (export / "drivers.csv").write_text("\n".join(drivers[:-1]) + "\n")
    assert ig.load(export).relations[driver].num_edges == 132
    (export / "drivers.csv").write_text("\n".join(drivers[:-3]) + "\n")
    assert driver not in ig.load(export).relations


def test_in_pieces_it_is_the_same_graph(export, tmp_path):
    whole = convert_graph(export, tmp_path / "whole").graph
    pieces = convert_graph(export, tmp_path / "pieces", memory=1).graph
    check_graph(pieces)
    assert np.array_equal(whole.time, pieces.time)
    assert np.array_equal(whole.ids, pieces.ids)


def test_a_time_through_a_key_that_is_no_relation_is_refused(export):
    here("init", export)
    toml = export / "graph.toml"
    toml.write_text(toml.read_text().replace('"raceId.date"', '"teamId.date"'))
    with pytest.raises(InputError, match=r"time = 'teamId\.date' needs a relation"):
        ig.load(export)
    toml.write_text(toml.read_text().replace('"teamId.date"', '"raceId.day"'))
    with pytest.raises(InputError, match=r"races\.csv has no column 'day'"):
        ig.load(export)


def test_rows_that_end_early_are_filled_up_and_counted(export):
    races = (export / "races.csv").read_text().replace("raceId,year,date", "raceId,date,sprint,url")
    lines = [line.split(",") for line in races.splitlines()]
    rows = [",".join(lines[0])] + [f"{race},{date}" for race, _, date in lines[1:]]
    (export / "races.csv").write_text("\n".join(rows) + "\n")
    checked = here("check", export)
    assert checked.exit_code == 0
    assert (
        "12 rows have too few values; the last columns are read as missing there" in checked.stdout
    )
    check_graph(ig.load(export))
    (export / "races.csv").write_text("\n".join([*rows, "12,2005-03-01,a,b,c,d"]) + "\n")
    with pytest.raises(InputError, match=r"races\.csv cannot be read"):
        ig.load(export)


@pytest.mark.usefixtures("without_page")
def test_a_run_of_events_uses_the_entities(export, tmp_path):
    summary = ig.run(ig.load(export), tmp_path / "out", candidates=["labels"], folds=1, seeds=1)
    assert len(summary.predictions) == 24


MONTHS = [f"2019-{month:02}-01" for month in range(1, 13)]
LABELS = ["a", "b"] * 5 + [None, None]
CUSTOMERS = {"customer_id": [1, 2, 3, 4], "created_at": MONTHS[:4], "size": [5, 6, 8, 9]}
ORDERS = {
    "order_id": list(range(100, 112)),
    "customer_id": [1, 2, 3, 4] * 3,
    "shipped": MONTHS,
    "label": LABELS,
}


def write(folder, **tables):
    folder.mkdir(exist_ok=True)
    for name, columns in tables.items():
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
    return folder


def without(table, *columns):
    return {name: values for name, values in table.items() if name not in columns}


def test_a_date_of_another_name_is_the_time_and_not_that_of_the_parent(tmp_path):
    graph = ig.load(write(tmp_path / "one", customers=CUSTOMERS, orders=ORDERS))
    assert len(np.unique(graph.timestamp)) == 12
    orders = {**ORDERS, "paid": MONTHS}
    with pytest.raises(InputError, match="no table has a time and a label"):
        ig.load(write(tmp_path / "two", customers=CUSTOMERS, orders=orders))


def test_a_draft_of_events_with_two_dates_has_no_time(tmp_path):
    orders = {**without(ORDERS, "label"), "paid": MONTHS, "returned": LABELS}
    folder = write(tmp_path / "shop", customers=CUSTOMERS, orders=orders)
    assert here("init", folder).exit_code == 0
    assert 'id = "order_id"\ntime = ""' in (folder / "graph.toml").read_text()


def test_times_of_other_tables_are_of_the_kind_of_the_events(tmp_path):
    """Numbers of the events win against dates of a parent; other numbers are features."""
    orders = {**without(ORDERS, "shipped"), "time": range(1, 13)}
    graph = ig.load(write(tmp_path / "numbers", customers=CUSTOMERS, orders=orders))
    assert graph.timestamp.tolist() == list(range(1, 13))
    customers = {**without(CUSTOMERS, "created_at"), "year": [1990, 1991, 1992, 1993]}
    graph = ig.load(write(tmp_path / "dates", customers=customers, orders=ORDERS))
    assert set(graph.nodes["customer"].columns.kinds) == {"size", "year"}
    orders = without(ORDERS, "shipped")
    graph = ig.load(write(tmp_path / "years", customers=customers, orders=orders))
    assert graph.times.tolist() == [1990, 1991, 1992, 1993]


@pytest.mark.parametrize("name", ["date", "order_date"])
def test_events_have_the_date_of_the_latest_parent(name):
    """Not that of the first: a review comes after the order, and the product before both."""
    products = {"product_id": [1, 2], "created_at": MONTHS[:2]}
    reviews = {"product_id": [1, 2] * 6, "order_id": range(100, 112), "label": LABELS}
    orders = {"order_id": range(100, 112), name: MONTHS}
    tables = {"product": products, "order": orders, "review": reviews}
    graph = ig.from_tables(tables, quiet=True)
    assert len(np.unique(graph.timestamp)) == 12
    # Which of two dates is meant is for the user to decide; the product's is not.
    tables["order"] = {"order_id": range(100, 112), "order_date": MONTHS, "paid": MONTHS}
    with pytest.raises(InputError, match="review has no time column"):
        ig.from_tables(tables, quiet=True)


def test_rows_that_refer_to_events_have_their_only_date():
    """A payment comes after its order; the birthday of a customer is no time."""
    tables = {
        "customer": {"customer_id": [1, 2, 3, 4], "birthday": MONTHS[:4]},
        "order": {**ORDERS, "customer_id": [1, 2, 3, 4] * 3},
        "payment": {
            "payment_id": range(12),
            "order_id": range(100, 112),
            "paid_at": [f"2019-{min(month + 4, 12):02}-15" for month in range(1, 13)],
            "amount": range(12),
        },
    }
    graph = ig.from_tables(tables, period="month", quiet=True)
    assert graph.nodes["customer"].time is None
    assert graph.name_of(graph.time.min()) == "2019-01"
    assert graph.name_of(graph.nodes["payment"].time.min()) == "2019-05"


def test_years_of_other_tables_are_no_times_of_events_in_seconds(tmp_path):
    tables = {
        "movies": {"movieId": [1, 2, 3], "year": [1990, 1994, 2001]},
        "ratings": {
            "movieId": [1, 2, 3] * 4,
            "timestamp": [1_500_000_000 + 10_000_000 * k for k in range(12)],
            "label": LABELS,
        },
    }
    graph = ig.load(write(tmp_path / "films", **tables))
    assert graph.nodes["movie"].columns.kinds == {"year": "number"}


@pytest.mark.parametrize("suffix", ["", ".0"])
def test_events_need_no_ids(tmp_path, suffix):
    """Not even if every key occurs once; gaps make floats of the keys of a pandas frame."""
    keys = [f"{key}{suffix}" for key in (*ORDERS["customer_id"][:11], 4)]
    orders = {**without(ORDERS, "order_id"), "customer_id": [*keys[:11], None]}
    customers = {**CUSTOMERS, "customer_id": [1, 2, 3, 4]}
    graph = ig.load(write(tmp_path / "data", customers=customers, orders=orders))
    relation = graph.relations["customer", "order_customer_id", "order"]
    assert relation.edge_index[0].tolist() == [0, 1, 2, 3] * 2 + [0, 1, 2]
    few = {name: values[:4] for name, values in orders.items()} | {"label": ["a", "b", "a", None]}
    graph = ig.load(write(tmp_path / "few", customers=customers, orders=few))
    assert graph.relations["customer", "order_customer_id", "order"].num_edges == 4


def test_a_table_of_labels_with_two_keys_is_one_of_events(tmp_path):
    """And one of three keys, too; the tables have ids of any spelling."""
    tables = {
        "movies": {"id": [1, 2, 3], "length": [90, 95, 99]},
        "users": {"id": [1, 2, 3, 4], "age": [20, 30, 40, 50]},
        "ratings": {
            "movie_id": [1, 2, 3] * 4,
            "userId": [1, 2, 3, 4] * 3,
            "date": MONTHS,
            "label": LABELS,
        },
    }
    graph = ig.load(write(tmp_path / "two", **tables))
    assert set(graph.nodes) == {"movie", "user", "rating"}
    assert len(graph.relations) == 2
    tables["stores"] = {"store_key": ["x", "y"], "size": [1, 2]}
    tables["ratings"]["home_store_key"] = ["x", "y"] * 6
    graph = ig.load(write(tmp_path / "three", **tables))
    assert ("store", "rating_home_store_key", "rating") in graph.relations
    assert len(graph.relations) == 3


def test_two_roles_of_a_table_are_keys(tmp_path):
    """Without "id" in their names; a single column may be something else."""
    teams = {"team": ["a", "b", "c"], "city": ["x", "x", "y"]}
    home = ["a", "b", "c"] * 4
    matches = {"date": MONTHS, "home_team": home, "away_team": home[::-1], "label": LABELS}
    graph = ig.load(write(tmp_path / "two", teams=teams, matches=matches))
    assert ("team", "match_home_team", "match") in graph.relations
    assert ("team", "match_away_team", "match") in graph.relations
    pages = {"page_id": [1, 2, 3, 4], "size": [5, 6, 8, 9]}
    visits = {"page_id": [1, 2, 3, 4] * 3, "last_page": [1, 2] * 6, "at": MONTHS, "label": LABELS}
    graph = ig.load(write(tmp_path / "one", pages=pages, visits=visits))
    assert list(graph.relations) == [("page", "visit_page_id", "visit")]
    accounts = {"account": range(12), "opened": MONTHS, "label": LABELS}
    transfers = {"from_account": [0, 1], "to_account": [1, 2], "amount": [5, 7], "on": MONTHS[:2]}
    graph = ig.load(write(tmp_path / "edges", accounts=accounts, transfers=transfers))
    assert graph.relations["node", "to", "node"].time is not None


@pytest.mark.parametrize(
    ("ends", "column"),
    [(("movieId", "userId"), "rating"), (("sender_id", "receiver_id"), "length")],
)
def test_dated_edges_are_to_be_classified_if_nothing_else_is(tmp_path, ends, column):
    tables = {
        "movies": {"movieId": [1, 2, 3], "year": [1990, 1994, 2001]},
        "users": {"userId": range(10, 14), "born": MONTHS[:4]},
        "events": {ends[0]: [1, 2, 3] * 4, ends[1]: [10, 11, 12, 13] * 3, "at": MONTHS},
    }
    if ends[0] == "sender_id":
        tables["events"]["sender_id"] = [13, 12, 10] * 4
    tables["events"][column] = range(12)
    folder = write(tmp_path / "events", **tables)
    assert here("init", folder).exit_code == 0
    text = (folder / "graph.toml").read_text()
    assert 'target = "event"' in text
    assert 'time = "at"' in text
    assert all(f'[edges."event_{end}"]' in text for end in ends)


@pytest.mark.parametrize("columns", [["paperId", "authorId"], ["paper", "author"]])
def test_a_table_of_two_keys_holds_edges(tmp_path, columns):
    paper, author = columns
    tables = {
        "papers": {paper: range(12), "date": MONTHS, "label": LABELS},
        # the column "name" does not hold the ids
        "authors": {author: [f"w{k}" for k in range(3)], "name": ["Li", "Li", "Wu"]},
        "paper_authors": {paper: range(12), author: [f"w{k}" for k in range(3)] * 4},
        "remarks": {"text": ["a", "a"]},
    }
    folder = write(tmp_path / "papers", **tables)
    graph = ig.load(folder)
    relation = graph.relations["paper", "paper_authors", "author"]
    assert relation.edge_index.tolist()[1] == [0] * 4 + [1] * 4 + [2] * 4
    assert "remarks.csv: not used" in here("check", folder).stdout


def test_two_tables_of_edges_between_rows_without_ids(tmp_path):
    tables = {
        "papers": {"date": MONTHS, "label": LABELS, "pages": range(12)},
        "cites": {"sourceId": [3, 4], "targetId": [1, 2]},
        "likes": {"from": [1, 2, 5], "to": [0, 0, 4]},
    }
    graph = ig.load(write(tmp_path / "papers", **tables))
    assert graph.relations["paper", "cites", "paper"].edge_index.tolist() == [[3, 4], [1, 2]]
    assert graph.relations["paper", "likes", "paper"].num_edges == 3


def test_tables_in_singular_and_plural_are_two_types(tmp_path):
    tables = {
        "order": ORDERS,
        "orders": {**ORDERS, "order_id": list(range(200, 212))},
        "cites": {"source": [100], "target": [101]},
    }
    with pytest.raises(InputError, match="order, orders have a label, so the type"):
        ig.load(write(tmp_path / "both", **tables))


def test_keys_that_are_decimals():
    """As some databases store all numbers."""
    orders = {**ORDERS, "customer_id": [Decimal(key) for key in ORDERS["customer_id"]]}
    graph = ig.from_tables({"customer": CUSTOMERS, "order": orders}, quiet=True)
    relation = graph.relations["customer", "order_customer_id", "order"]
    assert relation.edge_index[0].tolist() == [0, 1, 2, 3] * 3


def test_the_longest_name_decides_which_table_a_key_refers_to(tmp_path):
    tables = {
        "items": {"item_id": [1, 2, 3], "price": [1, 2, 4]},
        "order_items": {"order_item_id": [1, 2, 3], "amount": [3, 2, 1]},
        "returns": {
            "return_id": range(12),
            "order_item_id": [1, 2, 3] * 4,
            "date": MONTHS,
            "label": LABELS,
        },
    }
    graph = ig.load(write(tmp_path / "shop", **tables))
    assert list(graph.relations) == [("order_item", "return_order_item_id", "return")]


def test_roles_of_frames_with_keys():
    """Of the type to classify, or by type."""
    tables = {"customer": CUSTOMERS, "order": {**ORDERS, "number": list(range(99, 111))}}
    plain = ig.from_tables(tables, quiet=True)
    graph = ig.from_tables(tables, id="number", quiet=True)
    assert graph.ids.tolist() == tables["order"]["number"]
    key = "customer", "order_customer_id", "order"
    assert np.array_equal(graph.relations[key].edge_index, plain.relations[key].edge_index)
    by_type = ig.from_tables(
        tables,
        id={"order": "number", "customer": "customer_id"},
        time={"order": "shipped"},
        columns={"customer": {"size": "category"}},
        quiet=True,
    )
    assert by_type.ids.tolist() == graph.ids.tolist()
    assert by_type.nodes["customer"].columns.kinds["size"] == "category"


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        ({"target": "ordr"}, "target='ordr' is not a table; choose one of customer, order"),
        ({"id": "nr"}, "order has no column 'nr'"),
        ({"columns": ["size"]}, "should be a mapping"),
        ({"entities": {"customer": ["customer_id"]}}, "entities are columns of a single table"),
    ],
)
def test_roles_of_frames_with_keys_that_cannot_be(roles, sentence):
    with pytest.raises(InputError, match=sentence):
        ig.from_tables({"customer": CUSTOMERS, "order": ORDERS}, quiet=True, **roles)


@pytest.mark.parametrize("entities", [["customer_id"], {"customer": "customer_id"}])
def test_entities_are_lists_of_columns(entities):
    with pytest.raises(InputError, match="should be lists of columns by type"):
        ig.from_tables(ORDERS, entities=entities, quiet=True)


def test_rows_may_refer_to_rows_of_their_own_table(tmp_path):
    """Answers name the comment that they answer; the first ones answer none."""
    rng = np.random.default_rng(0)
    number = np.arange(200)
    answered = np.where(number < 5, -1, rng.integers(0, np.maximum(number, 1)))
    comments = pd.DataFrame(
        {
            "id": number,
            "parent_comment_id": pd.array(np.where(answered < 0, None, answered), dtype="Int64"),
            "user_id": rng.integers(0, 30, 200),
            "date": np.datetime64("2020-01-01") + number,
            "tone": rng.choice(["kind", "rude"], 200),
            "words": rng.random(200),
        }
    )
    comments.to_csv(tmp_path / "comments.csv", index=False)
    pd.DataFrame({"id": range(30)}).to_csv(tmp_path / "users.csv", index=False)
    assert here("init", tmp_path).exit_code == 0
    declared = tmp_path / "graph.toml"
    assert 'label = ""  # none; it may be tone' in declared.read_text()
    graph = ig.load(tmp_path)
    own = graph.relations["comment", "comment_parent_comment_id", "comment"].edge_index
    assert np.array_equal(own, [answered[5:], number[5:]])
    assert len(graph.relations) == 2


def test_rows_without_a_time_come_no_earlier_than_rows_of_their_own_table():
    """A shipment that belongs to another one: only the first names a dated order."""
    orders = {
        "id": range(4),
        "date": ["2018-03-01", "2019-03-01", "2022-03-01", "2023-03-01"],
        "late": ["yes", "no", "yes", "no"],
    }
    shipments = {
        "id": range(4),
        "parent_shipment_id": pd.array([None, 0, 1, None], dtype="Int64"),
        "order_id": pd.array([2, 0, 0, 1], dtype="Int64"),
        "size": range(4),
    }
    graph = ig.from_tables(
        {"order": pd.DataFrame(orders), "shipment": pd.DataFrame(shipments)},
        target="order",
        label="late",
        period="year",
        quiet=True,
    )
    assert [graph.name_of(t) for t in graph.nodes["shipment"].time.tolist()] == [
        "2022",
        "2022",
        "2022",
        "2019",
    ]


def test_a_column_named_like_its_own_table_is_no_key():
    laps = pd.DataFrame(
        {
            "id": range(60),
            "lap": np.arange(60) % 20,
            "driver_id": np.arange(60) % 6,
            "date": np.datetime64("2020-01-01") + np.arange(60),
            "label": np.where(np.arange(60) % 3, "a", "b"),
        }
    )
    drivers = pd.DataFrame({"id": range(6)})
    graph = ig.from_tables({"laps": laps, "drivers": drivers}, label="label", quiet=True)
    assert [triple[0] for triple in graph.relations] == ["drivers"]
    assert "lap" in graph.target_nodes.columns.kinds
