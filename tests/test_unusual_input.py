"""Unusual input.

Pipes, markup in names, tensors of every kind, extreme options; one sentence each, no hang.
"""

import os
import socket

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import impact_gnn as ig
from commands import here as impact
from impact_gnn._progress import Terminal

G = ig.tsbm(num_nodes=120, num_times=5, num_labels=2, num_features=3, mean_degree=6, seed=0)
PARTS = {
    "x": np.array(G.x),
    "y": np.array(G.y),
    "time": np.array(G.time),
    "edge_index": np.array(G.edge_index),
}
NODES = "id,time,label,f\n{0},1,x,1\nb,2,y,2\nc,3,y,3\nd,4,,4\n"


def refused(*arguments, **options):
    done = impact(*arguments, **options)
    assert done.exit_code == 2
    return " ".join(done.output.split())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES.format("a"))
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\nc,d\n")
    return tmp_path


@pytest.mark.parametrize("name", ["g.npz", "features.npy", "manifest.json"])
def test_a_pipe_is_refused_and_not_waited_for(folder, name):
    os.mkfifo(folder / name)
    assert "is a pipe, a socket or a device" in refused(
        "check", folder / name if name == "g.npz" else folder
    )


def test_sockets_devices_and_pipes_as_features_are_refused(tmp_path):
    np.savez(tmp_path / "g.npz", **PARTS)
    os.mkfifo(tmp_path / "x.npy")
    for features in (tmp_path / "x.npy", "/dev/zero"):
        assert "is a pipe" in refused("diagnose", tmp_path / "g.npz", "--features", features)
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(str(tmp_path / "s.npz"))
        assert "is a pipe" in refused("check", tmp_path / "s.npz")


@pytest.mark.usefixtures("without_page")
def test_markup_in_names_is_printed_as_it_is(folder, tmp_path):
    out = tmp_path / "o[" / "b][red]"  # "o[/b][red]" when it is printed
    (tmp_path / "o[").mkdir()
    assert "o[/b][red]" in refused("check", out)
    assert "o[/b][red]" in impact("generate", nodes=50, labels=2, out=out).output
    (folder / "nodes.csv").write_text(
        NODES.format("[/b]").replace("x", "[red]").replace("f\n", "[/i]\n")
    )
    (folder / "edges.csv").write_text("source,target\n[/b],b\nb,c\nc,d\n")
    output = impact("check", folder).output
    assert "[/i]" in output
    run = impact(
        "run", folder, out=tmp_path / "o[" / "b]", candidates="prior:features", effort="quick"
    )
    assert run.exit_code == 0
    assert "o[/b]" in run.output
    assert "o[/b]" in impact("report", tmp_path / "o[" / "b]").output
    table = tmp_path / "o[" / "b].csv"
    assert (
        "o[/b].csv"
        in impact("predict", tmp_path / "o[" / "b]" / "model", folder, "--out", table).output
    )


def test_markup_in_progress():
    from rich.console import Console

    with (
        Console(force_terminal=True) as console,
        Terminal(console) as terminal,
        console.capture() as captured,
    ):
        terminal("[/b]", 1, 2, "[/i]")
        terminal._bars.refresh()
        terminal("[/b]", 2, 2, "[/i]")
    assert "[/i]" in captured.get()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--seed", -1], "seed=-1"),
        (["--seed", 10**30], "does not fit into a 64-bit integer"),
        (["--seeds", 10**30], "--seeds"),
        (["--seeds", 0], "--seeds"),
        (["--folds", 0], "--folds"),
        (["--hops", 10**6], "more than 100"),
        (["--memory", -1], "not a memory size"),
        (["--budget", "nan"], "not a duration"),
        (["--cutoff", 10**30], "does not fit into a 64-bit integer"),
    ],
)
def test_options_beyond_reason(tmp_path, options, sentence):
    np.savez(tmp_path / "g.npz", **PARTS)
    shared = {"candidates": "prior:features", "effort": "quick", "out": tmp_path / "out"}
    assert sentence in refused("run", tmp_path / "g.npz", *options, **shared)


@pytest.mark.parametrize(
    "options",
    [
        {"device": "cuda"},
        {"device": "mps"},
        {"epochs": "a"},
        {"lr": "a"},
        {"hidden": -1},
        {"hidden": 10**12},
        {"dropout": 2},
        {"dropout": float("nan")},
        {"seed": 2**64},
    ],
)
def test_options_of_a_pipeline(options):
    if (
        getattr(torch, str(options.get("device")), None)
        and getattr(torch, options["device"]).is_available()
    ):
        pytest.skip("this machine has one")
    with pytest.raises(ig.InputError, match=next(iter(options))):
        ig.Pipeline("sign", cutoff=4, **({"epochs": 2} | options)).fit(G)


def pyg(**changes):
    tensors = {name: torch.tensor(values) for name, values in PARTS.items()}
    return Data(**tensors | {name: change(tensors[name]) for name, change in changes.items()})


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.to(torch.bfloat16),
        lambda x: x.to(torch.float16),
        lambda x: x.to_sparse(),
        lambda x: x.requires_grad_(),
        lambda x: x.to(torch.float8_e5m2),
    ],
)
def test_tensors_that_can_be_read(change):
    x = ig.from_pyg(pyg(x=change)).x
    np.testing.assert_allclose(x, np.array(G.x), rtol=0.2, atol=1e-3)


@pytest.mark.parametrize("name", ["x", "y", "time", "edge_index"])
def test_tensors_without_data_are_refused(name):
    with pytest.raises(ig.InputError, match="cannot be read as an array"):
        ig.from_pyg(pyg(**{name: lambda values: values.to("meta")}))


def test_sparse_features_that_would_not_fit_are_refused():
    huge = torch.sparse_coo_tensor(torch.tensor([[0], [0]]), torch.ones(1), (120, 10**12))
    with pytest.raises(ig.InputError, match="would need"):
        ig.from_pyg(pyg(x=lambda x: huge))


@pytest.mark.parametrize(
    "ids",
    [
        np.arange(120) + 1j,
        np.arange(120).astype("m8[D]"),
        np.array([f"a\0{i}" for i in range(120)]),
        np.array([f"\ud800{i}" for i in range(120)]),
        np.array([b"\xff%d" % i for i in range(120)]),
    ],
)
def test_ids_that_files_cannot_keep_are_refused(ids):
    with pytest.raises(ig.InputError, match="ids"):
        ig.TemporalGraph(**PARTS, ids=ids)


def test_ids_of_bytes_become_text():
    assert ig.TemporalGraph(**PARTS, ids=[b"%d" % i for i in range(120)]).ids[7] == "7"


@pytest.mark.parametrize(
    "names", [["a", "a"], ["1", 1.0], [b"a", "b"], ["a\0b", "c"], ["\ud800", "c"]]
)
def test_ambiguous_class_names_are_refused(names):
    with pytest.raises(ig.InputError, match="label_names"):
        ig.TemporalGraph(**PARTS, label_names=names)
