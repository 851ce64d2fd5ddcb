"""A script for test_durability.

Kills work with SIGKILL before its n-th change of a file, and repeats it.

Every attempt is a fork of this process with the same initial state. After the kill, files must be
in the old or in the new state, and in no other. After the repetition, all files must equal those of
a run without a kill, byte by byte, and no temporary file may remain. A SAMPLE of 0 tests every
event.

    python tests/killed_run.py PLACE CASE:SAMPLE ...
"""

import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import impact_gnn as ig
from impact_gnn.cli import app
from impact_gnn.engines import Disk
from impact_gnn.estimators import Ensemble, Pipeline
from impact_gnn.graph import TemporalGraph, graph_digest
from impact_gnn.report import page

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate")
UNSEEN = ((os, "fsync"), (os, "posix_fallocate"))  # by audit hooks
TIMED = ("seconds", "cost", "seal")


class OnFiles:
    """An engine that stores hops in files."""

    def __init__(self, place):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(300, 40)).astype(np.float32)
        self.graph = TemporalGraph(
            x=x, time=rng.integers(0, 4, 300), edge_index=rng.integers(0, 300, (2, 3000))
        )

    def prepare(self, place):
        pass

    def work(self, place):
        disk = Disk(place / "disk", memory=17 * 4 * self.graph.num_nodes, threads=1)
        both = disk.graph(self.graph, upto=2, undirected=True)
        disk.hops([disk.operator(both, weighting="pmp")] * 2, both.x)

    def look(self, place):
        pass


class Run(OnFiles):
    """A run whose page is not drawn: drawing takes seconds and changes no file."""

    def __init__(self, place):
        self.graph = ig.tsbm(
            num_nodes=80, num_times=4, num_labels=2, num_features=2, mean_degree=6, seed=0
        )
        page.render = lambda *_, **__: "page"

    def work(self, place):
        ig.run(
            self.graph,
            place / "new" / "out",
            model="linear",
            candidates=["prior:plain"],
            folds=1,
            seeds=1,
        )


class Converted(Run):
    """A graph that is written over an older one."""

    def __init__(self, place):
        super().__init__(place)
        self.source_folder, self.old = place / "source", self.graph.upto(2)
        self.graph.save(self.source_folder)

    def prepare(self, place):
        self.old.save(place / "graph")

    def work(self, place):
        app(
            ["convert", str(self.source_folder), "--out", str(place / "graph")],
            standalone_mode=False,
        )

    def look(self, place):
        digest = graph_digest(ig.load(place / "graph", verify=True))
        assert digest in (graph_digest(self.old), graph_digest(self.graph))


class Predicted(Converted):
    """A model and a table of predictions, each over an older one."""

    def __init__(self, place):
        super().__init__(place)
        for name, graph in (("old", self.old), ("new", self.graph)):
            Pipeline("prior").fit(graph).save(place / name)
        self.old, self.new = Ensemble.load(place / "old"), Ensemble.load(place / "new")

    def prepare(self, place):
        self.old.save(place / "model")
        (place / "p.csv").write_text("old")

    def work(self, place):
        self.new.save(place / "model")
        words = [
            "predict",
            str(place / "model"),
            str(self.source_folder),
            "--out",
            str(place / "p.csv"),
        ]
        app(words, standalone_mode=False)

    def look(self, place):
        assert Ensemble.load(place / "model").fitted.t_max in (
            self.old.fitted.t_max,
            self.new.fitted.t_max,
        )
        assert (place / "p.csv").read_text()[:3] in ("old", '"id')


CASES = {
    "disk": OnFiles,
    "run": Run,
    "convert": Converted,
    "predict": Predicted,
}


@dataclass
class Death:
    """Counts changes of files below a place from now on; the process dies before number `limit`."""

    place: Path
    limit: int | None
    events: list[str] = field(default_factory=list)

    def begin(self):
        sys.addaudithook(self.hook)
        for module, name in UNSEEN:
            setattr(module, name, self.counted(getattr(module, name)))

    def hook(self, event, arguments):
        if event == "open":
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(path).startswith(
                str(self.place)
            ):
                self.count(event)
        # Within a tree that is removed, names are relative to an open directory.
        elif event in CHANGES and (
            str(self.place) in str(arguments[0]) or not os.path.isabs(arguments[0])
        ):
            replaces = event == "os.rename" and (
                os.path.isdir(arguments[0]) or os.path.exists(arguments[1])
            )
            self.count("replaces" if replaces else event)

    def counted(self, plain):
        def call(*arguments):
            self.count(plain.__name__)
            return plain(*arguments)

        return call

    def count(self, event):
        self.events.append(event)
        if len(self.events) == self.limit:
            os.kill(os.getpid(), signal.SIGKILL)


def forked(work, *arguments):
    """Whether the work in a process of its own was killed.

    Anything else that goes wrong there is an error here.
    """
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def untimed(value):
    if isinstance(value, dict):
        return {name: untimed(part) for name, part in value.items() if name not in TIMED}
    return value


def tree(place):
    """Everything below a place by its name; measured times are left out."""
    contents = {}
    for path in sorted(place.rglob("*")):
        content = path.read_bytes() if path.is_file() else None
        if path.name in ("summary.json", "backtest.json"):
            content = untimed(json.loads(content))
        if path.name != "seconds.json" and path.parts[-2:] != ("work", "summary.json"):
            contents[str(path.relative_to(place))] = content
    return contents


def sampled(events, sample):
    """Numbers of events, from 1, in an order that is always the same.

    First where a name changes hands, or just has.
    """
    first = {n + k for n, event in enumerate(events, 1) for k in (0, 1) if event == "replaces"}
    mixed = np.random.default_rng(0).permutation(len(events)) + 1
    return sorted(mixed, key=lambda n: n not in first)[: sample or None]


def attempt(name, place, sample):
    case, at = CASES[name](place), place / "work"

    def begin():
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir()
        case.prepare(at)

    def dying(limit):
        death = Death(at, limit)
        death.begin()
        case.work(at)
        (place / "events").write_text(json.dumps(death.events))

    begin()
    case.work(at)  # in the parent too: forks then have all modules imported and kernels compiled
    wanted = tree(at)
    begin()
    assert not forked(dying, None)
    events = json.loads((place / "events").read_text())
    chosen = sampled(events, sample)
    for limit in chosen:
        begin()
        assert forked(dying, limit), f"{name} was not killed at {limit} of {len(events)}"
        case.look(at)
        case.work(at)
        result = tree(at)
        assert result == wanted, (
            name,
            limit,
            sorted(n for n in result | wanted if result.get(n) != wanted.get(n)),
        )
    print(f"\n{name}: killed {len(chosen)} times of {len(events)}")


if __name__ == "__main__":
    for part in sys.argv[2:]:
        name, sample = part.split(":")
        (here := Path(sys.argv[1]).resolve() / name).mkdir()
        attempt(name, here, int(sample))
