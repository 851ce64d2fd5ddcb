"""Damaged run folders and odd databases give a result or one sentence; user files stay."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import pytest

import impact_gnn as ig
from commands import here
from fuzzing import seeds
from impact_gnn import _files
from impact_gnn.checks import InputError
from impact_gnn.data.sources import database
from impact_gnn.report import page
from test_damaged_files import changed_bytes, changed_json
from test_user_files import snapshot

SECONDS = 120  # in which a command must end
FILES = [
    "summary.json",
    "report.html",
    "predictions.csv",
    "evaluation.json",
    "figures/sums.json",
    "figures/periods.svg",
    "figures",
    "model",
    "model/sums.json",
    "model/schema.json",
    "model/ensemble.json",
    "model/member-0/pipeline.json",
]
HREFS = "".join(
    f'<a href="figures/{one}">' for one in ("..", "../..", "mine.svg", "notes.txt", "../victim")
)
NAMES = ["..", "../summary.json", "", "a/b.svg", "/etc/passwd", "x.svg\n", "periods.svg", None, 7]


FIGURES = dict.fromkeys(("periods", "new-one"), "<svg>")


def not_drawn(*_, drawings, **__):
    """A page of two figures, in place of `page.render`."""
    drawings |= FIGURES
    return "page"


@contextlib.contextmanager
def bounded():
    """A command that does not end fails."""

    def stop(*_):
        raise AssertionError(f"no end in {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run, its graph, labels, and around them files and folders of a user."""
    root = tmp_path_factory.mktemp("whole") / "root"
    graph = ig.tsbm(num_nodes=90, num_times=5, num_labels=2, num_features=2, mean_degree=6, seed=0)
    graph.save(root / "g")
    options = {"candidates": ["prior:plain", "linear:plain"], "folds": 1, "seeds": 1}
    ig.run(graph, root / "out", model="linear", **options)
    rows = graph.time == graph.times[-1]
    labels = pd.DataFrame({"id": np.flatnonzero(rows), "label": graph.y[rows]})
    labels.to_csv(root / "labels.csv", index=False)
    assert here("evaluate", root / "out", root / "labels.csv").exit_code == 0
    for name in ("victim/a.svg", "out/own.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("years of work")
    for name in ("out.tmp-backup", "p.csv.impact-0123456789abcdef.tmp"):
        (root / name).mkdir()
        (root / name / "thesis.txt").write_text("years of work")
    return root


def spoil(root, rng):
    """Changes one entry of the run's folder, if that is possible after a change before."""
    with contextlib.suppress(OSError, ValueError):
        spoil_one(root, rng)


def spoil_one(root, rng):
    out = root / "out"
    path = out / FILES[rng.integers(0, len(FILES))]
    kind = int(rng.integers(0, 8))
    if kind == 0:  # what stands there is a link
        goal = ["../victim", "../victim/a.svg", "..", "nowhere", "/etc/passwd", "/dev/zero"]
        _files.remove(path)
        path.symlink_to(goal[rng.integers(0, len(goal))])
    elif kind == 1:
        _files.remove(path)
        if choice := rng.integers(0, 3):
            path.mkdir() if choice == 1 else os.mkfifo(path)
    elif kind == 2:
        _files.remove(out / "report.html")  # it may be a pipe by now
        (out / "report.html").write_text(HREFS)
        (out / "figures" / "mine.svg").write_text("years of work")
        if rng.random() < 0.7:
            names = {str(NAMES[k]): "" for k in rng.integers(0, len(NAMES), 3)}
            _files.write_json(out / "figures" / _files.SUMS, names, sealed=True)
    elif path.is_symlink() or not path.is_file():
        pass
    elif path.suffix == ".json" and kind < 7:
        content = json.loads(path.read_text())
        sealed = isinstance(content, dict) and "seal" in content
        if sealed and rng.random() < 0.7:  # with a valid seal
            _files.write_json(path, plain(changed_json(content["content"], rng)), sealed=True)
        else:
            path.write_text(json.dumps(changed_json(content, rng)))
        if path.parent.name == "model" and path.name != "sums.json" and rng.random() < 0.8:
            (out / "model" / "sums.json").unlink()
            _files.seal_folder(out / "model")
    else:
        path.write_bytes(changed_bytes(path.read_bytes(), rng))


def same_file(one, other, name):
    """Whether a file is the same in two folders."""
    return (one / name).is_file() and (one / name).read_bytes() == (other / name).read_bytes()


def plain(value):
    """Without NaN, which sealed files cannot hold."""
    return json.loads(json.dumps(value).replace("NaN", "null"))


def may_change(name, before, command):
    """Whether a command may write or remove this entry."""
    if before is not None and not os.path.stat.S_ISREG(before[0]):
        return False
    folder, _, file = name.rpartition("/")
    if folder == "out/figures":
        return file not in ("mine.svg", "notes.txt") and file.endswith((".svg", ".csv", ".json"))
    return name in ("out/report.html", *command["writes"])


def test_run_folders(whole, tmp_path, monkeypatch):
    root = tmp_path / "root"
    commands = [
        {"words": ["report", root / "out"], "writes": []},
        {
            "words": ["evaluate", root / "out", root / "labels.csv"],
            "writes": ["out/evaluation.json"],
        },
        {
            "words": ["predict", root / "out" / "model", root / "g", "--out", root / "p.csv"],
            "writes": ["p.csv"],
        },
    ]
    outcomes = set()
    for seed in seeds(40):
        rng = np.random.default_rng(seed)
        subprocess.run(["cp", "-a", whole, root], check=True)
        for _ in range(int(rng.integers(1, 3))):
            spoil(root, rng)
        before = snapshot(root)
        command = commands[rng.integers(0, len(commands))]
        # Drawing takes seconds; it is of interest where its numbers were changed.
        is_drawn = rng.random() < 0.5 and not same_file(root, whole, "out/summary.json")
        try:
            with bounded(), monkeypatch.context() as patched:
                if not is_drawn:
                    patched.setattr(page, "render", not_drawn)
                done = here(*command["words"])
        except Exception as error:
            raise AssertionError(f"seed {seed}: {command['words'][0]}: {error!r}") from error
        where = f"seed {seed}: {command['words'][0]}: {done.stderr}"
        assert done.exit_code in (0, 2), where
        errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert len(errors) == (done.exit_code == 2), where
        after = snapshot(root)
        changed = [
            name
            for name in before.keys() | after.keys()
            if before.get(name) != after.get(name) and name != "out/figures"
        ]
        odd = [name for name in changed if not may_change(name, before.get(name), command)]
        assert not odd, f"{where} changed {odd}"
        outcomes.add(done.exit_code)
        shutil.rmtree(root)
    assert outcomes == {0, 2}


# -- databases

ODD_NAMES = [
    "nodes",
    "a b",
    'quo"te',
    "quo'te",
    "semi;colon",
    "dot.ted",
    "main.nodes",
    "select",
    "ünï",
    "日本",
    "x" * 200,
    "new\nline",
    "\x1b[31m",
    "%s",
    ":name",
    "?",
    "[x]",
    "`x`",
    "a/b",
    "../x",
    "--",
    "id",
    "/dev/zero",
    " ",
    "sqlite_x",
    "NULL",
]
DUCK = {
    "integer": ["1", "-7", "null"],
    "bigint": ["9223372036854775807", "null"],
    "ubigint": ["18446744073709551615", "0"],
    "hugeint": ["170141183460469231731687303715884105727", "9007199254740993", "null"],
    "double": ["0.1", "'nan'::double", "'inf'::double", "null"],
    "decimal(38,10)": ["1.0000000001", "null"],
    "varchar": ["''", "' '", "'007'", "'a''b'", "null", "chr(10)"],
    "boolean": ["true", "false", "null"],
    "date": ["date '2020-02-29'", "null"],
    "timestamp": ["timestamp '2020-01-01 10:00:00.000001'", "null"],
    "time": ["time '10:00:00'", "null"],
    "uuid": ["uuid '00000000-0000-0000-0000-000000000001'", "null"],
    "blob": ["'\\x00\\xff'::blob", "null"],
    "integer[]": ["[1, null]", "null"],
    "struct(a integer)": ["{'a': 1}", "null"],
}
LITE = {
    "": ["1", "'x'", "0.5", "null", "x'00ff'"],
    "integer": ["1", "-7", "9223372036854775807", "'x'", "null"],
    "real": ["0.1", "1e300", "9e999", "null"],
    "text": ["''", "'007'", "'a''b'", "null"],
    "numeric": ["0.0000000000001", "7", "'1.10'", "null"],
    "boolean": ["1", "0", "7", "null"],
    "date": ["'2020-02-29'", "'yesterday'", "5", "null"],
    "datetime": ["'2020-01-01 10:00'", "null"],
    "json": ["'[1]'", "'no json'", "null"],
    "blob": ["x'00ff'", "null"],
    "no such type": ["1", "'x'"],
}


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def odd_schema(rng, kinds):
    """Statements that make tables and views with odd names, types and values."""
    tables = [ODD_NAMES[k] for k in rng.permutation(len(ODD_NAMES))[: rng.integers(1, 4)]]
    statements = []
    for name in tables:
        count = int(rng.integers(1, 4))
        columns = [ODD_NAMES[k] for k in rng.permutation(len(ODD_NAMES))[:count]]
        types = [str(list(kinds)[k]) for k in rng.integers(0, len(kinds), count)]
        parts = ", ".join(f"{quoted(c)} {t}" for c, t in zip(columns, types, strict=True))
        statements.append(f"create table {quoted(name)} ({parts})")
        for _ in range(int(rng.integers(0, 4))):
            row = ", ".join(kinds[t][rng.integers(0, len(kinds[t]))] for t in types)
            statements.append(f"insert into {quoted(name)} values ({row})")
        if rng.random() < 0.4:
            statements.append(f"create view {quoted('v ' + name)} as select * from {quoted(name)}")
    return statements


def same(one, other):
    """Whether two readings of a value agree; drivers and Arrow have types of their own."""
    if one is None or other is None:
        return one is other
    if isinstance(one, float | int | Decimal) and isinstance(other, float | int | Decimal):
        return one == other or (one != one and other != other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or str(one) == str(other) or getattr(other, "bytes", other) == one


def independent_reading(connection, kind):
    """Names of columns and rows of every table and view, by the driver itself."""
    query = "select table_name from information_schema.tables"
    if kind == "sqlite":
        query = "select name from sqlite_master where type in ('table', 'view')"
    tables = {}
    for (name,) in connection.execute(query).fetchall():
        tables[name] = [], None
        with contextlib.suppress(sqlite3.Error):  # a view of a table that could not be created
            rows = connection.execute(f"select * from {quoted(name)}")
            names = [column[0] for column in rows.description]
            tables[name] = names, [list(row) for row in rows.fetchall()]
    return tables


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_databases(tmp_path, kind):
    outcomes = set()
    for seed in seeds(60):
        rng, path = np.random.default_rng(seed), tmp_path / f"{seed}.db"
        connect, kinds = (duckdb.connect, DUCK) if kind == "duckdb" else (sqlite3.connect, LITE)
        connection, statements = connect(str(path)), []
        for statement in odd_schema(rng, kinds):
            with contextlib.suppress(duckdb.Error, sqlite3.Error):  # a name that the driver refuses
                connection.execute(statement)
                statements.append(statement)
        if kind == "sqlite":
            connection.commit()
        wanted = independent_reading(connection, kind)
        connection.close()
        before = snapshot(tmp_path)
        address = f"duckdb:{path}" if kind == "duckdb" else f"sqlite:///{path}"
        try:
            sources = database(address)
        except InputError:
            outcomes.add("sentence")
            path.unlink()
            continue
        assert sources.keys() == wanted.keys(), f"seed {seed}: {statements}"
        for name, source in sources.items():
            where = f"seed {seed}: {name!r} of {statements}"
            try:
                table = source.table
            except InputError:  # which is one line
                outcomes.add("sentence")
                continue
            names, rows = wanted[name]
            names = [name if name.strip() else f"Unnamed: {k}" for k, name in enumerate(names)]
            assert table.column_names == names, where
            result = [list(row.values()) for row in table.to_pylist()]
            agree = len(result) == len(rows) and all(map(same, result, rows))
            assert agree, f"{where}: {result} {rows}"
            outcomes.add("same")
        assert snapshot(tmp_path) == before
        path.unlink()
    assert outcomes == {"same", "sentence"}
