"""Every method crossed with every law it must obey; a new method is one line in `METHODS`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impact_gnn import alignment, weighting
from impact_gnn._array import periods
from impact_gnn.connectivity import relative_connectivity

NUM_LABELS, CUTOFF = 3, 10


@dataclass(frozen=True)
class Inputs:
    """Inputs of methods. `label` has the truth of the targets too: no method may read it."""

    message: np.ndarray
    previous: np.ndarray
    label: np.ndarray
    time: np.ndarray
    edge_index: np.ndarray
    cutoff: int = CUTOFF

    @property
    def target(self):
        return self.time >= self.cutoff

    @classmethod
    def drawn(cls, seed=0, num_nodes=150, num_edges=2500, width=4):
        rng = np.random.default_rng(seed)
        label = np.where(rng.random(num_nodes) < 0.1, -1, rng.integers(0, NUM_LABELS, num_nodes))
        time = rng.choice([3, 4, 7, 8, 10, 11], num_nodes)
        spread = 1 + np.arange(width) / 2 + (time[:, None] - 3) / 10
        return cls(
            message=rng.normal(size=(num_nodes, width)) * spread + label[:, None],
            previous=rng.normal(size=(num_nodes, width)) * (1 + np.arange(width))
            + rng.normal(size=(num_nodes, 1)),
            label=label,
            time=time,
            edge_index=rng.integers(0, num_nodes, (2, num_edges)),
        )

    def to(self, library, floats=np.float64):
        """The same in another library, read-only where the library knows that."""

        def moved(values, dtype=None):
            values = np.array(values, dtype=dtype)
            if library == "torch":
                return torch.from_numpy(values)
            values.flags.writeable = False
            return values

        return replace(
            self,
            message=moved(self.message, floats),
            previous=moved(self.previous, floats),
            label=moved(self.label),
            time=moved(self.time),
            edge_index=moved(self.edge_index),
        )


@dataclass(frozen=True)
class Method:
    """A method, and whether its result has a row per node, an entry per edge, or neither."""

    call: Callable
    per: str
    label_free: bool = False


def connectivity(g):
    return relative_connectivity(
        g.edge_index, g.label, g.time, num_labels=NUM_LABELS, cutoff=g.cutoff
    )


def pny(name):
    def call(g):
        degree = np.bincount(np.asarray(g.edge_index[1]), minlength=len(g.message))
        table = weighting.pmp(np.unique(np.asarray(g.time)))
        options = {"connectivity": connectivity(g), "degree": degree, "table": table, "map": name}
        return alignment.pny(g.message, g.previous, g.label, g.time, target=g.target, **options)

    return call


def weights(name):
    def call(g):
        times, period = periods(np.asarray(g.time))
        table = weighting.table(name, times, np.bincount(period))
        period = torch.from_numpy(period) if isinstance(g.edge_index, torch.Tensor) else period
        weight = weighting.edge_weight(table, g.edge_index, period, period)
        return weighting.normalize_rows(weight, g.edge_index[1], len(g.time))

    return call


def table(name):
    def call(g):
        times, counts = np.unique(np.asarray(g.time), return_counts=True)
        return weighting.table(name, times, counts)

    return call


METHODS = {
    "center": Method(lambda g: alignment.center(g.message, g.time), "node", label_free=True),
    "standardize": Method(
        lambda g: alignment.standardize(g.message, g.time), "node", label_free=True
    ),
    "jjnorm": Method(
        lambda g: alignment.jjnorm(g.message, g.label, g.time, target=g.target), "node"
    ),
    "jj_scales": Method(
        lambda g: np.array(
            list(alignment.jj_scales(g.message, g.label, g.time, target=g.target).values())
        ),
        "graph",
    ),
    "pny transport": Method(pny("transport"), "node"),
    "connectivity counted": Method(lambda g: connectivity(g).counted, "graph"),
    "connectivity g": Method(lambda g: connectivity(g).g, "graph"),
    "connectivity extended": Method(lambda g: connectivity(g).extended, "graph"),
    "connectivity label_mass": Method(
        lambda g: connectivity(g).label_mass(np.ones((6, 6))), "graph"
    ),
    **{
        f"table {name}": Method(table(name), "graph", label_free=True) for name in weighting.METHODS
    },
    **{
        f"edge weights {name}": Method(weights(name), "edge", label_free=True)
        for name in weighting.METHODS
    },
}


@pytest.fixture(params=sorted(METHODS))
def method(request):
    return METHODS[request.param]


@pytest.fixture(scope="module")
def base():
    return Inputs.drawn()


@pytest.fixture(scope="module")
def usual(base):
    """The result of every method on the same graph."""
    return {id(method): np.asarray(method.call(base)) for method in METHODS.values()}


def close(result, expected, **tolerance):
    np.testing.assert_allclose(
        np.asarray(result), expected, **{"rtol": 1e-7, "atol": 1e-9, **tolerance}
    )


@settings(max_examples=10)
@given(shift=st.one_of(st.integers(-3000, 3000), st.integers(-(2**60), 2**60)))
def test_the_origin_of_time_does_not_matter(method, base, usual, shift):
    close(
        method.call(replace(base, time=base.time + shift, cutoff=base.cutoff + shift)),
        usual[id(method)],
    )


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_labels_of_targets_do_not_matter(method, base, usual, seed):
    scrambled = np.random.default_rng(seed).integers(-1, NUM_LABELS, len(base.label))
    label = np.where(base.target, scrambled, base.label)
    np.testing.assert_array_equal(
        np.asarray(method.call(replace(base, label=label))), usual[id(method)]
    )
    column = label.astype(np.int32)[:, None]  # as OGB stores them
    np.testing.assert_array_equal(
        np.asarray(method.call(replace(base, label=column))), usual[id(method)]
    )


def test_labels_of_the_past_do_matter_where_they_should(method, base, usual):
    past = replace(base, label=np.where(base.target, base.label, np.roll(base.label, 1)))
    assert np.array_equal(np.asarray(method.call(past)), usual[id(method)]) == method.label_free


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_nodes_does_not_matter(method, base, usual, seed):
    order = np.random.default_rng(seed).permutation(len(base.time))
    place = np.argsort(order)
    moved = Inputs(
        message=base.message[order],
        previous=base.previous[order],
        label=base.label[order],
        time=base.time[order],
        edge_index=place[base.edge_index],
    )
    expected = usual[id(method)]
    close(method.call(moved), expected[order] if method.per == "node" else expected)


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_edges_does_not_matter(method, base, usual, seed):
    order = np.random.default_rng(seed).permutation(base.edge_index.shape[1])
    expected = usual[id(method)]
    result = method.call(replace(base, edge_index=base.edge_index[:, order]))
    close(result, expected[order] if method.per == "edge" else expected, rtol=1e-6)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_inputs_are_not_changed(method, base, library):
    inputs = base.to(library)  # read-only in numpy
    method.call(inputs)
    for name in ("message", "previous", "label", "time", "edge_index"):
        np.testing.assert_array_equal(np.asarray(getattr(inputs, name)), getattr(base, name))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("floats", [np.float32, np.float64])
def test_library_and_dtype_are_preserved(method, base, library, floats):
    result = method.call(base.to(library, floats))
    if method.per == "graph":
        assert type(result) is np.ndarray  # small results are always numpy
        assert result.dtype == np.float64
    else:
        assert isinstance(result, torch.Tensor if library == "torch" else np.ndarray)
        assert np.asarray(result).dtype == (floats if method.per == "node" else np.float32)


@pytest.mark.parametrize("floats", [np.float32, np.float64])
def test_torch_is_numpy(method, base, usual, floats):
    expected = (
        usual[id(method)]
        if floats is np.float64
        else np.asarray(method.call(base.to("numpy", floats)))
    )
    tolerance = {} if floats is np.float64 else {"rtol": 1e-4, "atol": 1e-5}
    close(method.call(base.to("torch", floats)), expected, **tolerance)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_float32_is_nearly_float64(method, base, usual, library):
    close(method.call(base.to(library, np.float32)), usual[id(method)], rtol=1e-3, atol=1e-4)


def test_every_other_memory_layout_gives_the_same(method, base, usual):
    wide = np.zeros((len(base.message), 8))
    wide[:, ::2] = base.message
    strided = replace(
        base,
        message=wide[:, ::2],
        previous=np.asfortranarray(base.previous),
        edge_index=np.ascontiguousarray(base.edge_index.T).T,
        label=np.repeat(base.label, 2)[::2],
        time=base.time[::-1].copy()[::-1],
    )
    close(method.call(strided), usual[id(method)])


def test_the_same_twice_is_the_same(method, base, usual):
    np.testing.assert_array_equal(np.asarray(method.call(base)), usual[id(method)])


def test_results_are_finite(usual):
    assert all(np.isfinite(values).all() for values in usual.values())
