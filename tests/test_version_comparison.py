"""Models of two checkouts are compared: equal source code gives equal predictions."""

from pathlib import Path

import numpy as np
import pytest

import impact_gnn as ig
from reproduction import __main__ as cli
from reproduction.bench import in_process
from reproduction.former import former

SOURCE = Path(ig.__file__).parents[1]


@pytest.fixture
def root(tmp_path):
    """A folder that holds a small graph of a known name, whose cutoff is 2011."""
    g = ig.tsbm(
        num_nodes=300, num_times=6, num_labels=3, num_features=4, mean_degree=10, seed=0, start=2006
    )
    (tmp_path / "data" / "aan").mkdir(parents=True)
    np.savez(tmp_path / "data/aan/aan.npz", x=g.x, y=g.y, time=g.time, edge_index=g.edge_index)
    return tmp_path / "data"


def first_seed_in_a_process(function, name, *, path, **options):
    """The first seed of each checkout starts a process.

    Later seeds need no proof that paths work.
    """
    if options["seed"] == 0:
        return in_process(function, name, path=path, **options)
    return function(name, **options)


def test_against_itself_a_model_neither_gains_nor_loses(tmp_path, root, monkeypatch):
    monkeypatch.setattr("reproduction.former.in_process", first_seed_in_a_process)
    (tmp_path / "former").mkdir()
    (tmp_path / "former" / "src").symlink_to(SOURCE)
    how = {"root": root, "names": ["aan"], "models": ["linear"], "seeds": 2}
    table = former(tmp_path / "former", tmp_path / "out", **how)
    for row in ("aan", "aan, validation"):
        cell = table.cells["linear", row, "now"]
        assert cell.count == 2
        assert 0 < cell.mean < 1
        assert (cell.gain.value, cell.gain.error) == (0, 0)
    monkeypatch.setattr(
        "reproduction.former.in_process", lambda *arguments, **more: [0.5, "48:ffffff000000", 1.0]
    )
    # all of it is there already
    assert former(tmp_path / "former", tmp_path / "out", **how).records == table.records
    (tmp_path / "other" / "src" / "impact_gnn").mkdir(parents=True)
    (tmp_path / "other" / "src" / "impact_gnn" / "__init__.py").write_text("")
    # another state is fitted anew, this one is not
    other = former(tmp_path / "other", tmp_path / "out", **how)
    assert other.cells["linear", "aan", "former"].mean == 0.5
    assert other.cells["linear", "aan", "now"].mean == table.cells["linear", "aan", "now"].mean


def test_what_cannot_be_compared_is_refused_with_a_sentence(tmp_path, root, capsys):
    (tmp_path / "empty").mkdir()
    here = str(SOURCE.parent)
    call = ["former", "--names", "aan", "--models", "linear", "--root", str(root)]
    for more, sentence in (
        ([here, "--seeds", "1"], "seeds=1 gives no standard error"),
        ([here, "--method", "nonsense"], "method 'nonsense' has an unknown part"),
        (
            [str(tmp_path / "empty")],
            "empty contains no package in src; pass a checkout of this repository.",
        ),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main([*call, "--out", str(tmp_path / "out"), *more])
        assert stopped.value.code == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
