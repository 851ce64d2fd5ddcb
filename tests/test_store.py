"""Resumed work.

Finished pieces are read, changed inputs are refused by name, other files are never touched.
"""

import itertools
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest

from impact_gnn import _files
from impact_gnn._codec import decode, encode
from impact_gnn._store import Store
from impact_gnn.checks import InputError
from impact_gnn.estimators import Method


class Colour(str, Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    colour: Colour
    method: Method
    pair: tuple[float, int]


@dataclass(frozen=True)
class Outer:
    by_fold: dict[int, float]
    inner: list[Inner]
    maybe: Inner | None
    names: tuple[str, ...]


VALUE = Outer({3: 0.5}, [Inner(Colour.RED, Method.parse("pmp+center"), (1.0, 2))], None, ("a", "b"))


def test_a_value_goes_to_json_and_back():
    data = encode(VALUE)
    assert data == {
        "by_fold": {"3": 0.5},
        "inner": [{"colour": "red", "method": "pmp+center", "pair": [1.0, 2]}],
        "maybe": None,
        "names": ["a", "b"],
    }
    assert decode(Outer, data) == VALUE
    assert encode({"x": np.float32(0.5), "n": np.int64(2)}) == {"x": 0.5, "n": 2}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"names": "ab"}, "it.names is 'ab' but should be a list"),
        ({"extra": 1}, "should be an object with"),
        ({"by_fold": {"3": "x"}}, "it.by_fold.3 is 'x' but should be of type float"),
        ({"inner": [{"colour": "blue", "method": "pmp", "pair": [1.0, 2]}]}, "should be one of"),
        ({"inner": [{"colour": "red", "method": "pmp", "pair": [1.0]}]}, "should be a list of 2"),
        ({"inner": [{"colour": "red", "method": "nope", "pair": [1.0, 2]}]}, "unknown part 'nope'"),
        ({"by_fold": {"3": True}}, "is True but should be of type float"),
    ],
)
def test_other_data_is_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        decode(Outer, encode(VALUE) | change)


def test_pieces_are_computed_once(tmp_path):
    place, calls = tmp_path / "store", []

    def make():
        calls.append(1)
        return VALUE

    for _ in range(2):
        with Store.open(place, {"graph": "sha256:1", "folds": 3}) as store:
            assert store.once("piece", Outer, make) == VALUE
            if store.array("a/b") is None:
                store.put_array("a/b", np.arange(3))
            assert store.array("a/b").tolist() == [0, 1, 2]
    assert len(calls) == 1


def test_a_refusal_names_what_differs(tmp_path):
    one, other = _files.digest(np.arange(2)), _files.digest(np.arange(3))
    with Store.open(tmp_path / "s", {"graph": one, "folds": 3, "budget": 60.0}):
        pass
    with (
        pytest.raises(
            InputError, match=r"folds was 3 and is 2 now; budget was 60.0 and is None now"
        ),
        Store.open(tmp_path / "s", {"graph": one, "folds": 2, "budget": None}),
    ):
        pass
    with (
        pytest.raises(
            InputError, match=r"other inputs \(graph has changed\); choose another place"
        ),
        Store.open(tmp_path / "s", {"graph": other, "folds": 3, "budget": 60.0}),
    ):
        pass


def test_refused_before_anything_is_done_it_leaves_nothing(tmp_path):
    def refused(done):
        with Store.open(tmp_path / "a" / "s", {}) as store:
            if done:
                store.put("piece", VALUE)
            raise InputError("no")

    with pytest.raises(InputError, match="no"):
        refused(done=False)
    assert not list(tmp_path.iterdir())
    for done in (True, False):
        with pytest.raises(InputError, match="no"):
            refused(done)
    assert (tmp_path / "a" / "s" / "piece.json").exists()


def test_foreign_files_are_refused_and_untouched(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    for options in ({"directory": tmp_path}, {"directory": tmp_path / "work", "within": tmp_path}):
        with pytest.raises(
            InputError, match="exists and contains other files; choose a new or an empty directory"
        ):
            Store.open(inputs={}, **options).__enter__()
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(InputError, match="is a file; choose a directory"):
        Store.open(tmp_path / "mine.txt", {}).__enter__()


LEFT = "work/inputs.json.impact-0123456789abcdef.tmp"


@pytest.mark.parametrize(
    "left", [[], ["work"], ["work/impact-gnn.lock"], ["work/impact-gnn.lock", LEFT]]
)
def test_what_a_killed_run_leaves_is_accepted(tmp_path, left):
    for name in left:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).mkdir() if name in ("work", LEFT) else (tmp_path / name).touch()
    with Store.open(tmp_path / "work", {"n": 1}, within=tmp_path) as store:
        (store.directory / "fits").mkdir()
        left = store.directory / "fits" / "x.npy.impact-0123456789abcdef.tmp"
        left.mkdir()
        (left / ".impact-gnn-temporary-0123456789abcdef").touch()
        (left / "x.npy").write_text("half")
    with Store.open(tmp_path / "work", {"n": 1}, within=tmp_path):
        pass
    assert sorted(f.name for f in (tmp_path / "work").rglob("*") if f.is_file()) == [
        "impact-gnn.lock",
        "inputs.json",
    ]


def test_killed_at_any_moment_it_goes_on(tmp_path):
    """A process that is killed at its n-th call that changes a file leaves a place that the next
    one takes up.
    """

    def work(place):
        with Store.open(place / "work", {"n": 1}, within=place) as store:
            store.put_array("fits/a", np.arange(3))
            return store.once("piece", Outer, lambda: VALUE), store.array("fits/a").tolist()

    for limit in range(1, 100):
        place = tmp_path / str(limit)
        child = os.fork()
        if child == 0:
            counter = itertools.count(1)
            for name in ("mkdir", "open", "replace", "fsync", "unlink", "chmod"):
                plain = getattr(os, name)

                def call(*arguments, plain=plain, counter=counter, limit=limit, **options):
                    if next(counter) == limit:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return plain(*arguments, **options)

                setattr(os, name, call)
            work(place)
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert work(place) == (VALUE, [0, 1, 2])
        names = sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.is_file())
        assert names == [
            "work/fits/a.npy",
            "work/impact-gnn.lock",
            "work/inputs.json",
            "work/piece.json",
        ]
        if not killed:
            break
    assert limit > 10


def test_two_processes_do_not_work_in_one_place(tmp_path):
    other = (
        "import sys; from pathlib import Path; from impact_gnn._store import Store\n"
        "try:\n with Store.open(Path(sys.argv[1]), {}): pass\nexcept ValueError as error: "
        "print(error)"
    )

    def attempt():
        command = [sys.executable, "-c", other, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with Store.open(tmp_path, {}):
        assert f"another process is working in {tmp_path}; wait for it" in attempt()
        with pytest.raises(InputError, match="another process"), Store.open(tmp_path, {}):
            pass
    assert attempt() == ""
