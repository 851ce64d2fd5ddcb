"""Columns become numbers.

The encoding of each kind, fitted before the cutoff only, columns matched by name.
"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

import impact_gnn as ig
from impact_gnn import _native
from impact_gnn.checks import InputError
from impact_gnn.encoding import Columns, Encoder, guess_kind
from impact_gnn.encoding.encoder import WORDS
from impact_gnn.encoding.kinds import parsed_numbers


def columns(known=None, **kinds_and_values):
    kinds = {name: kind for name, (kind, _) in kinds_and_values.items()}
    return Columns(
        pa.table({name: values for name, (_, values) in kinds_and_values.items()}),
        kinds,
        known=known,
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1, 2]), "number"),
        (pa.array([1.5, None]), "number"),
        (pa.array([True, False]), "number"),
        (pa.array(np.array([1, 2], "M8[D]")), "date"),
        (pa.array(["2020-01-01", "2021-05-06T10:00:00Z"]), "date"),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "category"),
        (pa.array(["red", "blue"] * 20), "category"),
        (pa.array(["we show that graphs change over time"] * 3), "text"),
        (pa.array([f"user{i}" for i in range(50)]), "ignore"),
        (pa.array([None, None], pa.string()), "ignore"),
        (pa.array([[1.0, 2.0], [3.0, 4.0]]), "vector"),
        (pa.array([{"a": 1}]), "ignore"),
        (pa.array([b"x"]), "ignore"),
    ],
)
def test_kinds_are_guessed(values, kind):
    assert guess_kind("column", values)[0] == kind
    assert (guess_kind("column", values)[1] != "") == (kind == "ignore")


def test_row_numbers_are_left_out_and_other_whole_numbers_are_not():
    assert guess_kind("Unnamed: 0", pa.array(range(30)))[0] == "ignore"
    assert guess_kind("user_id", pa.array(range(30)))[0] == "ignore"
    assert guess_kind("age", pa.array(range(30)))[0] == "number"


def test_missing_numbers_get_the_median_and_a_mark():
    encoded = columns(age=("number", [1.0, None, 3.0, float("nan"), 8.0]))
    assert encoded.encoder.outputs == ["age", "age is missing"]
    assert encoded.x.tolist() == [[1, 0], [3, 1], [3, 0], [3, 1], [8, 0]]


def test_numbers_that_are_whole_and_sane_stay_as_they_are():
    values = np.random.default_rng(0).normal(size=100).astype(np.float32) * 1e6
    assert np.array_equal(columns(a=("number", values)).x[:, 0], values)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e6, 1e300])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_wild_numbers_are_pulled_in_and_keep_their_order(scale, dtype):
    with np.errstate(over="ignore", under="ignore"):
        values = np.r_[np.linspace(-1, 1, 99), 1e4].astype(np.float64) * scale
        values = values.astype(dtype)
    x = columns(a=("number", values)).x
    assert np.isfinite(x).all()
    if np.isfinite(values).all() and len(np.unique(values)) == 100:
        assert (np.diff(x[:, 0][np.argsort(values)]) >= 0).all()


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.none(), min_size=1, max_size=30),
    st.integers(0, 30),
)
def test_any_numbers_become_finite_features(values, cut):
    known = np.arange(len(values)) < cut
    encoded = columns(known, a=("number", pa.array(values, pa.float64())))
    assert np.isfinite(encoded.x).all()
    assert len(encoded.x) == len(values)


def test_categories_one_hot_hashed_and_unknown():
    encoded = columns(np.array([1, 1, 1, 0], bool), c=("category", ["a", "b", None, "new"]))
    assert encoded.encoder.outputs == ["c = (missing)", "c = a", "c = b"]
    assert encoded.x.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0]]
    many = columns(c=("category", [f"v{i % 100}" for i in range(300)]))
    assert many.x.shape == (300, 64)
    assert np.array_equal(many.x[0], many.x[100])
    assert not np.array_equal(many.x[0], many.x[1])
    assert np.array_equal(columns(c=("category", [1, 2])).x, columns(c=("category", [1.0, 2.0])).x)


def test_text_is_tfidf_along_the_directions_of_known_texts():
    rng = np.random.default_rng(0)
    texts = [
        " ".join(rng.choice(["red", "green", "blue", "one", "two", "three"], 6)) for _ in range(40)
    ]
    known = np.arange(40) < 30
    x = columns(known, t=("text", texts)).x
    counts = HashingVectorizer(n_features=WORDS, alternate_sign=False, norm=None).transform(texts)
    weights = TfidfTransformer(sublinear_tf=True).fit(counts[:30])
    reduced = TruncatedSVD(6, random_state=0).fit(weights.transform(counts[:30]))
    assert np.allclose(x, reduced.transform(weights.transform(counts)), atol=1e-4)
    assert columns(t=("text", [*texts, None, ""])).x[-2:].any() == np.False_


def test_dates_are_days_to_the_nodes_own_time():
    encoded = columns(d=("date", np.array(["2020-01-01", "2020-01-03", "NaT"], "M8[D]")))
    assert encoded.x[:2, 0].tolist() == [18262, 18264]
    aged = Columns(
        encoded.table, encoded.kinds, np.array(["2020-01-11", "2020-01-04", "2020-01-01"], "M8[us]")
    )
    assert aged.x.tolist() == [[10, 0], [1, 0], [5.5, 1]]


def test_vectors_are_as_they_are():
    encoded = columns(v=("vector", [[1.0, 2.0], None, [3.0, 4.0]]))
    assert encoded.x.tolist() == [[1, 2], [2, 3], [3, 4]]
    with pytest.raises(InputError, match="column 'v' has lists of 2 different lengths"):
        _ = columns(v=("vector", [[1.0], [1.0, 2.0]])).x


def test_uninformative_columns_are_dropped_with_a_reason():
    encoded = columns(
        a=("number", [1, 1, 1]),
        b=("category", ["x", "x", "x"]),
        c=("number", [1, 2, 3]),
        t=("text", ["", "", None]),
    )
    assert encoded.encoder.outputs == ["c"]
    assert set(encoded.encoder.dropped) == {"a", "b", "t"}
    assert "constant" in encoded.encoder.dropped["a"]


def random_table(rng, size):
    return pa.table(
        {
            "number": pa.array(
                np.where(rng.random(size) < 0.2, np.nan, rng.normal(size=size)), from_pandas=True
            ),
            "wild": rng.normal(size=size) * 10.0 ** rng.integers(0, 12, size),
            "category": rng.choice(["a", "b", "c"], size),
            "many": [f"v{k}" for k in rng.integers(0, 90, size)],
            "text": [" ".join(rng.choice(["x1", "y2", "z3", "w4"], 4)) for _ in range(size)],
            "date": np.datetime64("2020-01-01", "D") + rng.integers(0, 900, size),
        }
    )


KINDS = {
    "number": "number",
    "wild": "number",
    "category": "category",
    "many": "category",
    "text": "text",
    "date": "date",
}


def test_nothing_after_the_cutoff_shapes_what_is_before_it():
    rng = np.random.default_rng(0)
    size, time = 200, np.repeat(np.arange(4), 50)
    table = random_table(rng, size)
    other = pa.concat_tables([table.slice(0, 100), random_table(rng, 100).cast(table.schema)])
    edges = rng.integers(0, size, (2, 300))

    def graph(values):
        return ig.TemporalGraph(x=Columns(values, KINDS), y=time % 2, time=time, edge_index=edges)

    for cutoff, view in ((2, lambda g: g.masked(2)), (2, lambda g: g.upto(2).masked(2))):
        ours, theirs = view(graph(table)), view(graph(other))
        before = ours.time < cutoff
        assert np.array_equal(ours.x[before], theirs.x[before])
        assert not np.array_equal(ours.x[~before], theirs.x[~before])
    # and without a cutoff they do, so that this test can fail
    assert not np.array_equal(graph(table).x[:100], graph(other).x[:100])


def test_a_fold_of_a_backtest_has_an_encoder_of_its_own():
    rng = np.random.default_rng(0)
    time = np.repeat(np.arange(6), 40)
    word = np.where(rng.random(240) < 0.5, "old", np.where(time >= 4, "new", "other"))
    g = ig.TemporalGraph(
        x=Columns(pa.table({"c": word}), {"c": "category"}),
        y=rng.integers(0, 2, 240),
        time=time,
        edge_index=rng.integers(0, 240, (2, 500)),
    )
    from impact_gnn.backtesting.folds import Window, fold_of

    assert g.masked(5).nodes["node"].columns.encoder.outputs == ["c = new", "c = old", "c = other"]
    assert fold_of(g.masked(5), Window(4, 4)).graph.nodes["node"].columns.encoder.outputs == [
        "c = old",
        "c = other",
    ]


def test_views_are_encoded_as_whole_tables_are(tmp_path):
    table = random_table(np.random.default_rng(1), 150)
    keep = np.flatnonzero(np.random.default_rng(2).random(150) < 0.6)
    moment = np.full(150, np.datetime64("2021-01-01", "us"))
    whole = Columns(table, KINDS, moment)
    alone = Columns(table.take(keep), KINDS, moment[keep])
    assert np.array_equal(whole.take(keep).x, alone.x)
    assert np.array_equal(whole.encoder.encode(whole.take(keep)), whole.x[keep])
    whole.take(keep).save(tmp_path / "c.arrow")
    back = Columns.open(tmp_path / "c.arrow")
    assert np.array_equal(back.x, alone.x)
    assert whole.take(keep).digest() == back.digest() == alone.digest() != whole.digest()


def test_large_features_outlive_the_release_of_mapped_pages(monkeypatch):
    monkeypatch.setattr("impact_gnn.encoding.encoder.LARGE", 1)
    values = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    for mapped in (False, True):
        x = Columns(pa.table({"a": values}), {"a": "number"}, mapped=mapped).x
        _native.release(x)
        assert isinstance(x, np.memmap) == mapped
        assert np.array_equal(x[:, 0], values)


def test_an_encoder_comes_back_from_disk_and_finds_columns_by_name():
    table = random_table(np.random.default_rng(3), 120)
    encoded = Columns(table, KINDS)
    back = Encoder.restored(encoded.encoder.content(), encoded.encoder.arrays())
    shuffled = table.select(list(reversed(table.column_names)))
    other = Columns(shuffled, dict(reversed(KINDS.items())))
    assert np.array_equal(back.encode(other), encoded.x)
    with pytest.raises(
        InputError,
        match=(
            "the feature columns text are missing, but the model needs them; the columns are "
            "number, "
        ),
    ):
        back.encode(
            Columns(table.drop_columns(["text"]), {k: v for k, v in KINDS.items() if k != "text"})
        )
    retyped = table.set_column(0, "number", pa.array(["many words"] * 120))
    with pytest.raises(
        InputError, match="column 'number' has type string such as 'many words', not a number"
    ):
        back.encode(Columns(retyped, KINDS))


def test_decimal_commas_of_rows_that_are_all_unknown_are_read():
    values, lost = parsed_numbers(pa.chunked_array([["1,5", "-3,25"]]), np.zeros(2, bool))
    assert (values.to_pylist(), lost) == ([1.5, -3.25], 0)


@pytest.mark.parametrize("extra", [[], [f"w{k}" for k in range(50)]])
@pytest.mark.parametrize("values", [["1.50", "2.50", "1e5"], ["TRUE", "FALSE"], ["+4", "5", "7"]])
def test_a_category_is_known_where_a_later_table_has_only_numbers(tmp_path, values, extra):
    """A word makes text of a column; without it the same values are numbers or truth values."""

    def columns_of(name, column):
        folder = tmp_path / name
        folder.mkdir()
        rows = [
            f"{k},{2000 + 4 * k // len(column)},{k % 2},{value}" for k, value in enumerate(column)
        ]
        (folder / "nodes.csv").write_text("\n".join(["id,time,label,size", *rows]) + "\n")
        (folder / "edges.csv").write_text("source,target\n0,1\n")
        (folder / "graph.toml").write_text(
            "[nodes.node]\nfile = 'nodes.csv'\n[edges.to]\nfile = 'edges.csv'\n"
        )
        return ig.load(folder).nodes["node"].columns

    past = columns_of("past", [*values, "x", *extra] * 4)
    assert past.kinds == {"size": "category"}
    later = columns_of("later", values * 4)
    expected = past.x[: len(values)]
    assert np.array_equal(past.encoder.encode(later)[: len(values)], expected)
    assert len(np.unique(expected, axis=0)) == len(values)
