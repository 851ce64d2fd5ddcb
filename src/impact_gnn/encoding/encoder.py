"""`Encoder`: raw columns as numbers, learned from known rows only.

It is kept with a model, so that next month's table reads the same, by the names of its columns.
Numbers stay as they are (missing ones get the median and a mark, wild ones are pulled in), few
values become a column each, many are hashed, text becomes the main directions of its words (TF-IDF
and SVD), a date the days to the node's own time.
"""

from __future__ import annotations

import mmap
import tempfile
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn import _files, _native
from impact_gnn._codec import decode, encode
from impact_gnn.checks import InputError, listing
from impact_gnn.encoding.columns import Block, Columns
from impact_gnn.encoding.kinds import (
    MISSING,
    dates,
    is_list,
    numbers,
    retyped,
    texts,
    value_name,
    vectors,
)
from impact_gnn.encoding.moments import is_text

SAMPLE = 200_000  # rows that a column is learned from at most
QUANTILES = 20_000  # of which about so many tell its quantiles
WILD = 1e4  # times its usual width that a number may lie off the middle before the column is taken for wild
FAR = 10.0  # times the range seen, beyond which later numbers are pulled in
FINE = 5e-5  # share of its middle that a column's width may be before float32 takes its values for one another
MOST_LOGARITHM = 20.0  # of a distance in usual widths: what lies yet further off is no measurement
SMALLEST, LARGEST = 1e-30, 1e30  # between which float32 can also hold squares and sums of hops
MANY = 0.01  # of the later values, from which on it is said that they are pulled in
MATRIX = ""  # the name of what is no column of a table
QUANTILE_NUMBERS = 1 << 22  # of a matrix of features that its quantiles are taken from at most
ONE_HOT = 40  # values of a category that get a column each; with more, all are hashed
BUCKETS = 64  # columns of a hashed category
WORDS = 1 << 14  # hashed words of a text
DIRECTIONS = 64  # columns of a text
LOOK = 2_000  # rows that are looked at to see whether a column says anything
TEXTS = 20_000  # texts from which the directions are learned at most
LARGE = 1 << 26  # bytes of features from which they may be kept in a file


class Dropped(Exception):  # noqa: N818 - not an error: the column says nothing
    """A column that has nothing to say; the message says why."""


@dataclass(frozen=True, eq=False)
class Part(ABC):
    """One column, and what was learned about it."""

    name: str
    kind: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]] = ()  # fields that are arrays

    @property
    @abstractmethod
    def outputs(self) -> list[str]:
        """Names of the columns it becomes."""

    @classmethod
    @abstractmethod
    def fit(cls, name: str, sample: Block) -> Part:
        """Learns from the values of some rows; raises `Dropped` where there is nothing to learn."""

    @abstractmethod
    def encode(self, block: Block) -> np.ndarray:
        """Values [n] or [n, outputs]."""

    def require_kind(self, column: pa.ChunkedArray) -> None:  # noqa: B027 - most kinds take all
        """Refuses a column of which no value is of this kind; single ones that are not are missing."""

    def silent(self, block: Block) -> bool:
        """Whether the values of some rows say nothing: missing, or never seen before."""
        return block.column(self.name).null_count == len(block.rows) or not self.encode(block).any()


@dataclass(frozen=True, eq=False)
class Number(Part):
    """A number: itself, or, where some are wild, its distance from the middle with a logarithm for what is far out."""

    fill: float
    marked: bool  # whether missing ones get a column
    low: float
    high: float
    middle: float
    width: float
    wild: bool
    kind: ClassVar[str] = "number"

    @property
    def outputs(self) -> list[str]:
        return [self.name, f"{self.name} is missing"] if self.marked else [self.name]

    @staticmethod
    def values(name: str, block: Block) -> np.ndarray:
        return numbers(name, block.column(name))

    def require_kind(self, column: pa.ChunkedArray) -> None:
        there = column.drop_null()
        if len(there) and is_text(column.type):
            read, wanted = (dates, "a date") if self.kind == "date" else (numbers, "a number")
            if np.isnan(read(self.name, there)).all():
                raise retyped(self.name, column, wanted)

    @classmethod
    def fit(cls, name: str, sample: Block) -> Number:
        values = cls.values(name, sample)
        missing = np.isnan(values)
        seen = values[~missing].astype(np.float64)
        if not len(seen):
            raise Dropped("it is empty before the cutoff")
        low, high = float(seen.min()), float(seen.max())
        if low == high and not missing.any():
            raise Dropped("it is constant before the cutoff")
        bounds = usual(
            seen[:: max(len(seen) // QUANTILES, 1), None], np.array([low]), np.array([high])
        )
        below, above, middle, width, wild = (column.item() for column in bounds)
        return cls(name, middle, bool(missing.any()), below, above, middle, width, wild)

    def silent(self, block: Block) -> bool:
        return bool(np.isnan(self.values(self.name, block)).all())

    def encode(self, block: Block) -> np.ndarray:
        values = self.values(self.name, block)
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, self.fill, values)
        values = (
            pulled(values, self.middle, self.width)
            if self.wild
            else near(values, self.low, self.high)
        )
        return np.column_stack([values, missing]) if self.marked else values


class Date(Number):
    """A date: the days from it to the node's own time, or since 1970 where nodes have no date."""

    kind: ClassVar[str] = "date"

    @staticmethod
    def values(name: str, block: Block) -> np.ndarray:
        days = dates(name, block.column(name))
        return days if block.moment is None else block.moment.astype(np.int64) / 86_400e6 - days


@dataclass(frozen=True, eq=False)
class Category(Part):
    """One of a few values: a column each, zeros for a value never seen; where there are many, hashed columns."""

    values: list[str]
    hashed: bool
    kind: ClassVar[str] = "category"
    missing: ClassVar[str] = "(missing)"

    @property
    def outputs(self) -> list[str]:
        if self.hashed:
            return [f"{self.name} #{k}" for k in range(BUCKETS)]
        return [f"{self.name} = {value}" for value in self.values]

    @classmethod
    def fit(cls, name: str, sample: Block) -> Category:
        seen = sorted(set(cls._coded(name, sample)[1]))
        if len(seen) < 2:
            raise Dropped("it is constant before the cutoff")
        return cls(name, [] if len(seen) > ONE_HOT else seen, len(seen) > ONE_HOT)

    @classmethod
    def _coded(cls, name: str, block: Block) -> tuple[np.ndarray, list[str]]:
        """The distinct values and where they stand."""
        coded = pc.fill_null(texts(name, block.column(name)), cls.missing).dictionary_encode()
        values = [value_name(value) for value in coded.dictionary.to_pylist()]
        return np.asarray(coded.indices), [
            cls.missing if value in MISSING else value for value in values
        ]

    def encode(self, block: Block) -> np.ndarray:
        code, distinct = self._coded(self.name, block)
        if self.hashed:
            from sklearn.feature_extraction import FeatureHasher

            hasher = FeatureHasher(BUCKETS, input_type="string", dtype=np.float32)
            return hasher.transform([[value] for value in distinct]).toarray()[code]
        rows = np.array(distinct, object)[:, None] == np.array(self.values, object)
        return rows.astype(np.float32)[code]


@dataclass(frozen=True, eq=False)
class Text(Part):
    """Words: TF-IDF of hashed words, along the main directions of the texts known before."""

    idf: np.ndarray
    directions: np.ndarray
    kind: ClassVar[str] = "text"
    arrays: ClassVar[tuple[str, ...]] = ("idf", "directions")

    @property
    def outputs(self) -> list[str]:
        return [f"{self.name} #{k}" for k in range(len(self.directions))]

    @classmethod
    def fit(cls, name: str, sample: Block) -> Text:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfTransformer

        counts = word_counts(name, sample)
        counts = counts[np.flatnonzero(np.diff(counts.indptr))]
        if counts.shape[0] > TEXTS:
            counts = counts[
                np.sort(np.random.default_rng(0).choice(counts.shape[0], TEXTS, replace=False))
            ]
        if counts.shape[0] < 3:
            raise Dropped("it has no words before the cutoff")
        weights = TfidfTransformer(sublinear_tf=True).fit(counts)
        most = min(DIRECTIONS, counts.shape[0] - 1, len(np.unique(counts.indices)))
        reduced = TruncatedSVD(most, random_state=0).fit(weights.transform(counts))
        return cls(name, weights.idf_.astype(np.float32), reduced.components_.astype(np.float32))

    def encode(self, block: Block) -> np.ndarray:
        counts = word_counts(self.name, block)
        values = (1 + np.log(counts.data)) * self.idf[counts.indices]
        # Texts are scaled to length 1, as the transformer does.
        row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        length = np.sqrt(np.bincount(row, values**2, counts.shape[0]))
        counts = counts.copy()
        counts.data = (values / length[row]).astype(np.float32)
        return np.asarray(counts @ self.directions.T)


def word_counts(name: str, block: Block) -> Any:
    """Counts of hashed words [n, WORDS], sparse."""
    from sklearn.feature_extraction.text import HashingVectorizer

    def counted(column: pa.Array) -> Any:
        vectorizer = HashingVectorizer(
            n_features=WORDS, alternate_sign=False, norm=None, dtype=np.float32
        )
        return vectorizer.transform(pc.fill_null(texts(name, column), "").to_pylist())

    return block.remembered(name, counted)


@dataclass(frozen=True, eq=False)
class Vector(Part):
    """A list of numbers, such as an embedding or a whole matrix of features; column by column as a `Number`."""

    fill: np.ndarray
    low: np.ndarray
    high: np.ndarray
    middle: np.ndarray
    width: np.ndarray
    wild: np.ndarray
    kind: ClassVar[str] = "vector"
    arrays: ClassVar[tuple[str, ...]] = ("fill", "low", "high", "middle", "width", "wild")

    @property
    def outputs(self) -> list[str]:
        return [f"{self.name} #{k}" for k in range(len(self.fill))]

    @classmethod
    def fit(cls, name: str, sample: Block) -> Vector:
        values = vectors(name, sample.column(name))
        seen = values[~np.isnan(values).any(1)]
        if not values.shape[1] or not len(seen):
            raise Dropped("it is empty before the cutoff")
        return cls.of(name, seen)

    @classmethod
    def of(cls, name: str, x: np.ndarray, known: np.ndarray | None = None) -> Vector:
        """What the rows in the mask `known` (None for all) of a matrix teach; it may be in a file."""
        if known is not None and not known.any():  # nothing is known, so every number may be right
            none = np.zeros(x.shape[1])
            reach = np.full(x.shape[1], LARGEST)
            return cls(
                name,
                fill=none,
                low=-reach,
                high=reach,
                middle=none,
                width=none + 1,
                wild=none.astype(bool),
            )
        rows = np.arange(len(x)) if known is None else np.flatnonzero(known)
        most = min(max(QUANTILE_NUMBERS // max(x.shape[1], 1), 1000), QUANTILES)
        some = x[rows[:: max(len(rows) // most, 1)]].astype(np.float64)
        seen = (x[part] if known is None else x[part][known[part]] for part in _native.blocks(x))
        ends = np.array([(part.min(0), part.max(0)) for part in seen if len(part)], np.float64)
        low, high = ends[:, 0].min(0), ends[:, 1].max(0)
        below, above, middle, width, wild = usual(some, low, high)
        # A column that has been constant tells nothing of how far others may lie.
        reach = np.where(low == high, FAR * np.maximum(np.abs(low), 1), 0.0)
        with np.errstate(over="ignore"):
            mean = np.clip(some.mean(0), low, high)
        return cls(name, mean, below - reach, above + reach, middle, width, wild)

    def require_kind(self, column: pa.ChunkedArray) -> None:
        if not is_list(column.type):
            return
        lengths = pc.list_value_length(column).unique().drop_null().to_pylist()
        if lengths and len(self.fill) not in lengths:
            came, wanted = lengths[0], len(self.fill)
            raise InputError(
                f"column '{self.name}' holds lists of {came} numbers, the model knows {wanted}."
            )

    def encode(self, block: Block) -> np.ndarray:
        values = vectors(self.name, block.column(self.name), len(self.fill))
        return self.within(np.where(np.isnan(values), self.fill, values))

    def within(self, values: np.ndarray) -> np.ndarray:
        """Rows of numbers without wild ones."""
        out = near(values, self.low, self.high)
        out[:, self.wild] = pulled(
            values[:, self.wild], self.middle[self.wild], self.width[self.wild]
        )
        return out

    def matrix(self, x: np.ndarray) -> np.ndarray:
        """The matrix itself where nothing in it is wild or far off, otherwise one without that, float32."""
        if x.shape[1] != len(self.low):
            return x  # for the model to refuse, which says what it was fitted with
        far = np.zeros(x.shape[1], np.int64)
        for part in _native.blocks(x):
            far += ((x[part] < self.low) | (x[part] > self.high)).sum(0)
        if not far.any() and not self.wild.any():
            return x
        if far.max() > MANY * len(x):
            share, column = far.max() / len(x), int(far.argmax())
            what = f"{share:.0%} of the values in feature column {column} lie far outside what the past holds"
            warnings.warn(
                f"{what}; they are pulled in, so look whether it means the same as before.",
                stacklevel=2,
            )
        out = room(x.shape, in_file=_native.mapping(x) is not None)
        for part in _native.blocks(x):
            out[part] = self.within(x[part])
        return out


def usual(
    some: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What is usual of columns, by `some` of their rows and the least and largest number in all.

    Bounds for later numbers, the middle, the usual width, and whether a column is wild: numbers far
    off the others, or
    of a size, or so close to each other beside it, that float32 cannot tell them apart.
    """
    a, first, middle, third, b = np.quantile(some, [0.01, 0.25, 0.5, 0.75, 0.99], axis=0)
    # Half of the values may be the same, then the usual width is that of nearly all, or of all.
    half = third / 2 - first / 2
    for wider in (b / 2 - a / 2, high / 2 - low / 2, np.full_like(half, 0.5)):
        half = np.where(half > 0, half, wider)
    size = np.maximum(high, -low)
    with np.errstate(over="ignore"):
        wild = np.maximum(high / 2 - middle / 2, middle / 2 - low / 2) > WILD * half
        wild |= (
            (size > LARGEST) | ((size > 0) & (size < SMALLEST)) | (half < FINE / 2 * np.abs(middle))
        )
        reach, width = (
            np.where(wild, 0.0, FAR * (high - low)),
            np.minimum(2 * half, np.finfo(np.float64).max),
        )
    return low - reach, high + reach, middle, width, wild


def near(values: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Values between the bounds as they are; one beyond them is no measurement, and becomes about the last one seen."""
    edge = FAR / (1 + 2 * FAR) * (high - low)
    return np.where(values < low, low + edge, np.where(values > high, high - edge, values))


def pulled(values: np.ndarray, middle: np.ndarray | float, width: np.ndarray | float) -> np.ndarray:
    """Distances from the middle in usual widths, with a logarithm for what is far out."""
    with np.errstate(over="ignore"):
        away = (values.astype(np.float64) / 2 - middle / 2) / width * 2
    logarithm = np.minimum(np.log(np.maximum(np.abs(away), 1)), MOST_LOGARITHM)
    return np.where(np.abs(away) <= 1, away, np.sign(away) * (1 + logarithm))


PARTS: dict[str, type[Part]] = {part.kind: part for part in (Number, Date, Category, Text, Vector)}


@dataclass(frozen=True, eq=False)
class Encoder:
    """Columns by name, each with what was learned about it; and those that were left out, with the reason.

    Examples:
        >>> table = pa.table({"age": [20, 30, None, 50], "colour": ["red", "blue", "red", "red"], "one": [1, 1, 1, 1]})
        >>> columns = Columns(table, {"age": "number", "colour": "category", "one": "number"})
        >>> columns.encoder.outputs, columns.encoder.dropped
        (['age', 'age is missing', 'colour = blue', 'colour = red'], {'one': 'it is constant before
        the cutoff'})
        >>> columns.x.tolist()[2]
        [30.0, 1.0, 0.0, 1.0]
    """

    parts: tuple[Part, ...]
    dropped: dict[str, str]

    @classmethod
    @_native.one_thread
    def fit(cls, columns: Columns) -> Encoder:
        """Learns from the known rows of `columns`, and from nothing else."""
        sample = columns.sample(SAMPLE)
        parts: list[Part] = []
        dropped: dict[str, str] = {}
        for name, kind in columns.kinds.items():
            try:
                parts.append(PARTS[kind].fit(name, sample))
            except Dropped as reason:
                dropped[name] = str(reason)
        return cls(tuple(parts), dropped)

    @classmethod
    def of_matrix(cls, x: np.ndarray, known: np.ndarray | None) -> Encoder:
        """For features that are a matrix, whose columns have no names."""
        return cls((Vector.of(MATRIX, x, known),), {})

    @property
    def is_of_matrix(self) -> bool:
        return [part.name for part in self.parts] == [MATRIX]

    def matrix(self, x: np.ndarray) -> np.ndarray:
        """A matrix without wild numbers."""
        assert isinstance(self.parts[0], Vector)
        return self.parts[0].matrix(x)

    @property
    def outputs(self) -> list[str]:
        """Names of the features."""
        return [name for part in self.parts for name in part.outputs]

    def encode(self, columns: Columns) -> np.ndarray:
        """The features [N, f] of columns, found by their names; refuses what is missing or of another type."""
        missing = [part.name for part in self.parts if part.name not in columns.table.column_names]
        if missing:
            has = listing(columns.table.column_names) or "none"
            raise InputError(
                f"there is no feature column {listing(missing)}, which the model needs; there are {has}."
            )
        for part in self.parts:
            part.require_kind(columns.table.column(part.name))
        widths = [len(part.outputs) for part in self.parts]
        ends = np.cumsum(widths)
        out = room((len(columns), int(ends[-1]) if len(ends) else 0), in_file=columns.mapped)

        def fill(rows: slice) -> None:
            block = columns.block(rows)
            for part, end, width in zip(self.parts, ends, widths, strict=True):
                # by its number: numpy copies a slice of one column several times slower
                if width == 1:
                    out[rows, end - 1] = part.encode(block).reshape(-1)
                else:
                    out[rows, end - width : end] = part.encode(block)

        _native.run(fill, [(rows,) for rows in columns.spans()], None)
        return out

    def new(self, columns: Columns) -> list[str]:
        """Columns that the encoder has never seen, and leaves out."""
        known = {part.name for part in self.parts} | self.dropped.keys()
        return [name for name in columns.kinds if name not in known]

    def silent(self, columns: Columns) -> list[str]:
        """Columns that are empty now, or hold only values that were never seen, as far as some rows show."""
        block = replace(columns, known=None).sample(LOOK)
        return [part.name for part in self.parts if part.silent(block)]

    # -- disk

    def content(self) -> dict[str, Any]:
        """What is no array, for JSON."""
        parts = []
        for part in self.parts:
            plain = [field.name for field in fields(part) if field.name not in part.arrays]
            parts.append(
                {"kind": part.kind, **{name: encode(getattr(part, name)) for name in plain}}
            )
        return {"parts": parts, "dropped": self.dropped}

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{k}.{name}": getattr(part, name)
            for k, part in enumerate(self.parts)
            for name in part.arrays
        }

    @classmethod
    def restored(cls, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Encoder:
        """What `content` and `arrays` gave."""
        parts = []
        for k, entry in enumerate(content["parts"]):
            made: Any = PARTS[entry["kind"]]
            hints = get_type_hints(made)
            plain = {
                name: decode(hints[name], value, name)
                for name, value in entry.items()
                if name != "kind"
            }
            parts.append(made(**plain, **{name: arrays[f"{k}.{name}"] for name in made.arrays}))
        return cls(tuple(parts), decode(dict[str, str], content["dropped"], "dropped"))


def room(shape: tuple[int, int], *, in_file: bool = False) -> np.ndarray:
    """An array to be filled, in memory or, where it is large, in a file that goes when the array does."""
    size = 4 * shape[0] * shape[1]
    if size < LARGE:
        return np.empty(shape, np.float32)
    if not in_file and size <= _native.free_memory() // 4:
        # numpy asks for huge pages, and where memory is in pieces the first touch of each takes
        # several times longer.
        return np.frombuffer(mmap.mmap(-1, size), np.float32).reshape(shape)
    folder = tempfile.TemporaryDirectory(prefix="impact-features-")
    _files.require_space(Path(folder.name), size)
    out = _files.create_array(Path(folder.name) / "x.npy", np.float32, shape)
    weakref.finalize(out, folder.cleanup)
    return out
