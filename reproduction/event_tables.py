"""Raw relational tables as graphs: F1 results with their foreign keys, NBER papers with authors.

A row may read what was known before its own event; columns of the event itself are left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import impact_gnn as ig

FINISHED = r"Finished|Lapped|\+\d+ Laps?"
NOT_KNOWN_BEFORE_THE_START = [
    "position",
    "positionText",
    "positionOrder",
    "points",
    "laps",
    "time",
    "milliseconds",
    "fastestLap",
    "rank",
    "fastestLapTime",
    "fastestLapSpeed",
    "statusId",
]


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
    results = results.drop(columns=NOT_KNOWN_BEFORE_THE_START)
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
