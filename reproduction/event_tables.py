"""Raw relational tables as graphs: F1 results with their foreign keys, NBER papers with authors.

A row may read what was known before its own event; columns of the event itself are outcomes, of
which `history` reads those of earlier rows, or are left out.
`python -m reproduction.event_tables` compares history features with and without running models.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

import impact_gnn as ig
from impact_gnn import methods
from impact_gnn.propagation.history import history_columns, history_names
from impact_gnn.statistics import paired

FINISHED = r"Finished|Lapped|\+\d+ Laps?"
KNOWN_AFTER_THE_RACE = {
    "position": "outcome",
    "positionText": "ignore",
    "positionOrder": "outcome",
    "points": "outcome",
    "laps": "outcome",
    "time": "ignore",
    "milliseconds": "outcome",
    "fastestLap": "outcome",
    "rank": "outcome",
    "fastestLapTime": "ignore",
    "fastestLapSpeed": "outcome",
    "statusId": "ignore",
}


@dataclass(frozen=True)
class EventTable:
    """A data set of the folder `tables`: how to read it, and the date where targets begin."""

    folder: str
    read: Callable[[Path], ig.TemporalGraph]
    cutoff: str


def f1(folder: Path, since: str = "1900", cutoff: str = "2016-01-01") -> ig.TemporalGraph:
    """Results of drivers in races since a date; the class is whether the driver did not finish."""

    def table(name: str, *drop: str) -> pd.DataFrame:
        return pd.read_csv(folder / f"{name}.csv", na_values="\\N").drop(columns=[*drop])

    races = table("races")[["raceId", "year", "round", "circuitId", "date"]]
    races = races[races["date"] >= since]
    results = table("results").merge(races[["raceId", "date", "round"]], on="raceId")
    status = results["statusId"].map(table("status").set_index("statusId")["status"])
    results["dnf"] = (~status.str.fullmatch(FINISHED)).map({True: "dnf", False: "finished"})
    qualifying = table("qualifying")[["raceId", "driverId", "position"]]
    qualifying = qualifying.rename(columns={"position": "qualified"})
    results = results.merge(qualifying, on=["raceId", "driverId"], how="left")
    born = table("drivers").set_index("driverId")["dob"]
    age = pd.to_datetime(results["date"]) - pd.to_datetime(results["driverId"].map(born))
    results["age"] = age.dt.days
    nodes = {
        "result": results.drop(columns=["raceId", "driverId", "constructorId"]),
        "race": races.drop(columns=["date", "year"]),
        "driver": table("drivers")[["driverId", "nationality"]],
        "constructor": table("constructors")[["constructorId", "nationality"]],
        "circuit": table("circuits")[["circuitId", "country", "alt"]],
    }
    edges = {
        (kind, "of", "result"): results[[f"{kind}Id", "resultId"]]
        for kind in ("race", "driver", "constructor")
    }
    edges["circuit", "of", "race"] = races[["circuitId", "raceId"]]
    return ig.from_tables(
        nodes,
        edges,
        target="result",
        id={kind: f"{kind}Id" for kind in nodes},
        time={"result": "date"},
        label="dnf",
        columns={"result": KNOWN_AFTER_THE_RACE},
        edge_source={triple: f"{triple[0]}Id" for triple in edges},
        edge_target={triple: f"{triple[2]}Id" for triple in edges},
        period="year",
        cutoff=cutoff,
        quiet=True,
    )


def nber(folder: Path) -> ig.TemporalGraph:
    """Working papers and their authors; the class is the program of papers that have just one."""
    papers = pd.read_csv(folder / "papers.csv")
    programs = pd.read_csv(folder / "paper_programs.csv", keep_default_na=False)
    programs = programs.drop_duplicates("paper", keep=False).set_index("paper")["program"]
    month = papers["month"].astype(str).str.zfill(2)
    papers["date"] = papers["year"].astype(str) + "-" + month + "-01"
    papers["program"] = papers["paper"].map(programs)
    authors = pd.read_csv(folder / "authors.csv")[["author"]]
    writes = pd.read_csv(folder / "paper_authors.csv")
    relation = ("author", "writes", "paper")
    return ig.from_tables(
        {"paper": papers[["paper", "date", "title", "program"]], "author": authors},
        {relation: writes},
        target="paper",
        id={"paper": "paper", "author": "author"},
        time={"paper": "date"},
        label="program",
        columns={"paper": {"title": "text"}},
        edge_source={relation: "author"},
        edge_target={relation: "paper"},
        period="year",
        cutoff="2018-01-01",
        dangling="drop",
        quiet=True,
    )


def f1_recent(folder: Path) -> ig.TemporalGraph:
    return f1(folder, since="1996", cutoff="2022-01-01")


EVENT_TABLES: Mapping[str, EventTable] = {
    "f1": EventTable("f1", f1, "2016-01-01"),
    "f1_recent": EventTable("f1", f1_recent, "2022-01-01"),
    "nber": EventTable("nber", nber, "2018-01-01"),
}


def matches(seed: int, num_teams: int = 20, num_weeks: int = 480) -> ig.TemporalGraph:
    """Draw matches of teams whose strengths drift: win, draw or loss of the home team."""
    rng = np.random.default_rng(seed)
    strength = rng.normal(0, 0.7, num_teams)
    rows = []
    for week in range(num_weeks):
        strength = 0.997 * strength + rng.normal(0, 0.06, num_teams)
        for home, away in rng.permutation(num_teams).reshape(-1, 2):
            lead = strength[home] - strength[away] + 0.4 + rng.logistic()
            result = ("loss", "draw", "win")[int(lead > -0.6) + int(lead > 0.6)]
            date = np.datetime64("2010-01-01") + 7 * week
            rows.append((date, f"team {home}", f"team {away}", result))
    table = pd.DataFrame(rows, columns=["date", "home_team", "away_team", "result"])
    return ig.from_tables(table, label="result", period="quarter", quiet=True)


def ratings(seed: int, size: int = 10_000) -> ig.TemporalGraph:
    """Draw ratings of films by users; both have effects, and good films are rated more often."""
    rng = np.random.default_rng(seed)
    user_effect, film_effect = rng.normal(0, 0.8, (2, 200))
    popularity = rng.pareto(1.5, 200) * np.exp(film_effect)
    user = rng.integers(0, 200, size)
    film = rng.choice(200, size, p=popularity / popularity.sum())
    liking = user_effect[user] + film_effect[film] + rng.logistic(size=size)
    columns = {
        "date": np.sort(np.datetime64("2015-01-01") + rng.integers(0, 1800, size)),
        "user_id": [f"user {k}" for k in user],
        "film_id": [f"film {k}" for k in film],
        "rating": np.select([liking > 0.6, liking < -0.6], ["good", "bad"], "fair"),
    }
    entities = {"user": ["user_id"], "film": ["film_id"]}
    return ig.from_tables(columns, label="rating", entities=entities, period="quarter", quiet=True)


def log_losses(graph: ig.TemporalGraph, model: str, method: str, num_folds: int) -> list[float]:
    """The mean log-loss in each of the last periods, by a model of what came before."""
    losses = []
    for cutoff in graph.times[-num_folds:].tolist():
        past = graph.upto(cutoff)
        pipeline = ig.Pipeline(model, method, cutoff=cutoff).fit(past)
        label = past.label[pipeline.targets(past)]
        probability = pipeline.predict_proba(past)[np.arange(len(label)), label]
        losses.append(float(-np.log(np.maximum(probability, 1e-12)).mean()))
    return losses


def without_running_models() -> None:
    """Register the part `aggregates`: history without the columns of running models."""

    def names(graph: ig.TemporalGraph) -> list[str]:
        return [name for name in history_names(graph) if "running" not in name]

    def columns(graph: ig.TemporalGraph, nodes: np.ndarray) -> np.ndarray:
        is_used = np.isin(history_names(graph), names(graph))
        return history_columns(graph, nodes)[:, is_used]

    part = methods.get("history")
    methods.register(replace(part, name="aggregates", inputs=columns, input_names=names))


def main(num_seeds: int = 5, num_folds: int = 8) -> None:
    """Print the change of the log-loss by running models on drawn tables."""
    without_running_models()
    for draw in (matches, ratings):
        for model in ("trees", "linear"):
            losses: dict[str, list[float]] = {"history": [], "aggregates": []}
            for seed in range(num_seeds):
                graph = draw(seed)
                for method, values in losses.items():
                    values += log_losses(graph, model, method, num_folds)
            change = paired(np.array(losses["history"]), np.array(losses["aggregates"]))
            print(f"{draw.__name__:8} {model:7} {np.mean(losses['aggregates']):.4f} {change}")


if __name__ == "__main__":
    main()
