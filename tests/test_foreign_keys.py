"""Tables that refer to each other by ids: relations, times through a key, short rows."""

import numpy as np
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
    text = (export / "results.csv").read_text().splitlines()
    text[1] = text[1].replace("0,0,0,", "0,0,99,", 1)
    (export / "results.csv").write_text("\n".join(text) + "\n")
    graph = ig.load(export)
    assert list(graph.relations) == [("race", "result_raceId", "result")]


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
