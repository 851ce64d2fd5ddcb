"""`Encoder`: turns raw columns into numbers, learned from known rows only.

It is saved with a model, so that next month's table is read in the same way, by the names of its
columns. Numbers stay as they are: missing ones get the median and an indicator, outliers are
compressed. Few values become a column each, many are hashed. Text becomes the main directions of
its words (TF-IDF and SVD), and a date the days to the node's own time.
"""

from __future__ import annotations

import mmap
import tempfile
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy import ndarray
from pyarrow import types

from impact_gnn import _files, _native
from impact_gnn._codec import decode, encode
from impact_gnn.checks import InputError, listing
from impact_gnn.encoding.columns import Block, Columns
from impact_gnn.encoding.kinds import (
    MISSING,
    OUTCOME,
    dates,
    is_list,
    is_number,
    number_name,
    numbers,
    retyped,
    texts,
    typed,
    value_name,
    vectors,
)
from impact_gnn.encoding.moments import is_text

SAMPLE = 200_000  # rows that a column is learned from at most
QUANTILES = 20_000  # rows that its quantiles are computed from, about
WILD = 1e4  # usual widths between a number and the middle beyond which a column is wild
FAR = 10.0  # times the known range, beyond which later numbers are clipped
FINE = 5e-5  # width of a column by its middle below which float32 cannot tell its values apart
MAX_LOGARITHM = 20.0  # of a distance in usual widths: further off is no measurement
SMALLEST, LARGEST = 1e-30, 1e30  # between these, float32 also holds squares and sums of hops
MANY = 0.01  # share of later values from which clipping is reported
MATRIX = ""  # the name of a matrix of features, which is no column of a table
QUANTILE_NUMBERS = 1 << 22  # numbers of a matrix that its quantiles are computed from at most
ONE_HOT = 40  # values of a category that get a column each; with more, all are hashed
BUCKETS = 64  # columns of a hashed category
WORDS = 1 << 14  # hashed words of a text
DIRECTIONS = 64  # columns of a text
MOST_OUTCOMES = 8  # columns that are known after the event
OUTCOME_VALUES = 8  # values of an outcome that is no number, at most
LOOK = 2_000  # rows that show whether a column is informative
TEXTS = 20_000  # texts that the directions are learned from at most
LARGE = 1 << 26  # bytes of features from which they may be stored in a file
MICROSECONDS_PER_DAY = 86_400e6


class Dropped(Exception):  # noqa: N818 - not an error: the column is not informative
    """A column that is not informative; the message says why."""


@dataclass(frozen=True, eq=False)
class Part(ABC):
    """The encoding of one column, learned from its known values."""

    name: str
    kind: ClassVar[str]

    @property
    @abstractmethod
    def outputs(self) -> list[str]:
        """The names of the features it becomes."""

    @classmethod
    @abstractmethod
    def fit(cls, name: str, sample: Block) -> Part:
        """Learn from the values of some rows; raise `Dropped` if there is nothing to learn."""

    @abstractmethod
    def encode(self, block: Block) -> ndarray:
        """Return features [n] or [n, outputs]."""

    def require_kind(self, column: pa.ChunkedArray) -> None:  # noqa: B027 - most kinds take all
        """Refuse a column of which no value is of this kind; single misfits are missing."""

    def silent(self, block: Block) -> bool:
        """Return whether all values of some rows are missing or unknown."""
        column = block.column(self.name)
        return column.null_count == len(column) or not self.encode(block).any()


@dataclass(frozen=True, eq=False)
class Number(Part):
    """A number; of a wild column, its distance from the middle, logarithmic if it is far off."""

    fill: float
    marked: bool  # whether missing ones get a column
    low: float
    high: float
    middle: float
    width: float
    wild: bool
    kind: ClassVar[str] = "number"
    read: ClassVar[Any] = staticmethod(numbers)  # a column as floats, NaN for missing values

    @property
    def outputs(self) -> list[str]:
        names = [self.name, f"{self.name} is missing"]
        return names if self.marked else names[:1]

    @classmethod
    def values(cls, name: str, block: Block) -> ndarray:
        return cls.read(name, block.column(name))

    def require_kind(self, column: pa.ChunkedArray) -> None:
        present = column.drop_null()
        if not len(present) or not is_text(column.type):
            return
        if np.isnan(self.read(self.name, present)).all():
            raise retyped(self.name, column, f"a {self.kind}")

    @classmethod
    def fit(cls, name: str, sample: Block) -> Number:
        values = cls.values(name, sample)
        missing = np.isnan(values)
        present = values[~missing, None].astype(np.float64)  # [n, 1]
        if not len(present):
            raise Dropped("it is empty before the cutoff")
        low = present.min(0)
        high = present.max(0)
        marked = bool(missing.any())
        if low == high and not marked:
            raise Dropped("it is constant before the cutoff")
        # Every k-th row is enough for quantiles.
        step = max(len(present) // QUANTILES, 1)
        scale = column_scales(present[::step], low, high)
        # Arrays of length 1 become numbers.
        scales = {field: values.item() for field, values in vars(scale).items()}
        return cls(name, fill=scales["middle"], marked=marked, **scales)

    def silent(self, block: Block) -> bool:
        return bool(np.isnan(self.values(self.name, block)).all())

    def encode(self, block: Block) -> ndarray:
        values = self.values(self.name, block)
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, self.fill, values)
        # A later value far out of range would outweigh all others in a linear model.
        encoded = clip_far(values, self.low, self.high)
        if self.wild:
            encoded = compress(values, self.middle, self.width)
        return np.column_stack([encoded, missing]) if self.marked else encoded


class Date(Number):
    """A date: the days from it to the node's own time, or since 1970 where nodes have no date."""

    kind: ClassVar[str] = "date"
    read: ClassVar[Any] = staticmethod(dates)

    @classmethod
    def values(cls, name: str, block: Block) -> ndarray:
        days = super().values(name, block)
        if block.moment is None:
            return days
        # Both in days since 1970.
        return block.moment.astype(np.int64) / MICROSECONDS_PER_DAY - days


@dataclass(frozen=True, eq=False)
class Category(Part):
    """One of a few values: a feature each, zeros for an unknown one; many values are hashed."""

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
        # Distinct values of the sample, whichever row has them.
        values = sorted(set(cls._coded(name, sample)[1]))
        if len(values) < 2:
            raise Dropped("it is constant before the cutoff")
        # Beyond that, a column each would be mostly zeros, and new values would be lost.
        hashed = len(values) > ONE_HOT
        return cls(name, [] if hashed else values, hashed)

    @classmethod
    def _coded(cls, name: str, block: Block) -> tuple[ndarray, list[str]]:
        """Return the code of every row, and the values that codes mean."""
        text = pc.fill_null(texts(name, block.column(name)), cls.missing)
        coded = text.dictionary_encode()
        names = map(value_name, coded.dictionary.to_pylist())
        values = [cls.missing if name in MISSING else name for name in names]
        return np.asarray(coded.indices), values

    def encode(self, block: Block) -> ndarray:
        code, distinct = self._coded(self.name, block)
        if self.hashed:
            from sklearn.feature_extraction import FeatureHasher

            # Distinct values are hashed once; rows look up their code.
            hasher = FeatureHasher(BUCKETS, input_type="string", dtype=np.float32)
            hashed = hasher.transform([number_name(value)] for value in distinct)
            return hashed.toarray()[code]
        if not is_text(block.column(self.name).type):
            # A table alone may have numbers where a word made text of the known values: 1.50.
            spellings = {number_name(value): value for value in self.values}
            distinct = [spellings.get(number_name(value), value) for value in distinct]
        # [distinct, values]: the one-hot row of a distinct value, zeros if it is unknown.
        rows = np.array(distinct, object)[:, None] == np.array(self.values, object)
        return rows.astype(np.float32)[code]


@dataclass(frozen=True, eq=False)
class Text(Part):
    """TF-IDF of hashed words, along the main directions of the known texts."""

    idf: ndarray
    directions: ndarray
    kind: ClassVar[str] = "text"

    @property
    def outputs(self) -> list[str]:
        return [f"{self.name} #{k}" for k in range(len(self.directions))]

    @classmethod
    def fit(cls, name: str, sample: Block) -> Text:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfTransformer

        counts = word_counts(name, sample)
        # Empty texts would only pull the directions towards zero.
        rows = np.flatnonzero(np.diff(counts.indptr))
        if len(rows) > TEXTS:
            rng = np.random.default_rng(0)
            rows = np.sort(rng.choice(rows, TEXTS, replace=False))
        if len(rows) < 3:
            raise Dropped("it has no words before the cutoff")
        counts = counts[rows]
        weights = TfidfTransformer(sublinear_tf=True).fit(counts)
        # There are no more directions than texts or words.
        num_words = len(np.unique(counts.indices))
        size = min(DIRECTIONS, len(rows) - 1, num_words)
        reduced = TruncatedSVD(size, random_state=0).fit(weights.transform(counts))
        directions = reduced.components_.astype(np.float32)
        return cls(name, weights.idf_.astype(np.float32), directions)

    def encode(self, block: Block) -> ndarray:
        from sklearn.feature_extraction.text import TfidfTransformer

        weights = TfidfTransformer(sublinear_tf=True)
        # An attribute that `fit` would set.
        weights.idf_ = self.idf
        weighted = weights.transform(word_counts(self.name, block))
        return np.asarray(weighted @ self.directions.T)


def word_counts(name: str, block: Block) -> Any:
    """Count hashed words [n, WORDS], sparse."""
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(
        n_features=WORDS,
        alternate_sign=False,
        norm=None,
        dtype=np.float32,
    )

    def count(column: pa.Array) -> Any:
        text = pc.fill_null(texts(name, column), "")
        return vectorizer.transform(text.to_pylist())

    return block.cached(name, count)


@dataclass(frozen=True, eq=False)
class Vector(Part):
    """Lists of numbers, such as embeddings or a matrix of features; each column as a `Number`."""

    fill: ndarray
    low: ndarray
    high: ndarray
    middle: ndarray
    width: ndarray
    wild: ndarray
    kind: ClassVar[str] = "vector"

    @property
    def outputs(self) -> list[str]:
        return [f"{self.name} #{k}" for k in range(len(self.fill))]

    @classmethod
    def fit(cls, name: str, sample: Block) -> Vector:
        values = vectors(name, sample.column(name))
        # Lists without a missing number.
        present = values[~np.isnan(values).any(1)]
        if not present.size:
            raise Dropped("it is empty before the cutoff")
        return cls.of(name, present)

    @classmethod
    def of(cls, name: str, x: ndarray, known: ndarray | None = None) -> Vector:
        """Learn from the rows of a matrix in the mask `known` (None for all); it may be mapped."""
        width = x.shape[1]
        rows = np.arange(len(x)) if known is None else np.flatnonzero(known)
        # Rows that quantiles are computed from: fewer where rows are wide.
        num_rows = min(max(QUANTILE_NUMBERS // max(width, 1), 1000), QUANTILES)
        step = max(len(rows) // num_rows, 1)
        sample = x[rows[::step]].astype(np.float64)
        # The extremes of all known rows [f], block by block.
        low = np.full(width, np.inf)
        high = -low
        for part in _native.blocks(x):
            block = x[part] if known is None else x[part][known[part]]
            low = np.minimum(low, block.min(0, initial=np.inf))
            high = np.maximum(high, block.max(0, initial=-np.inf))
        if not len(rows):  # nothing is known, so every number may be right
            sample = np.zeros((1, width))
            low = np.full(width, -LARGEST)
            high = -low
        scale = column_scales(sample, low, high)
        # A column that has been constant does not show how far later values may lie.
        size = np.maximum(np.abs(low), 1)
        reach = np.where(low == high, FAR * size, 0.0)
        with np.errstate(over="ignore"):
            # Rounding, or an overflow, may put the mean outside.
            mean = np.clip(sample.mean(0), low, high)
        scale = replace(scale, low=scale.low - reach, high=scale.high + reach)
        return cls(name, fill=mean, **vars(scale))

    def require_kind(self, column: pa.ChunkedArray) -> None:
        if not is_list(column.type):
            return
        lengths = pc.list_value_length(column).unique().drop_null().to_pylist()
        if lengths and len(self.fill) not in lengths:
            raise InputError(
                f"column '{self.name}' has lists of {lengths[0]} numbers, "
                f"but the model was fitted with lists of {len(self.fill)}."
            )

    def encode(self, block: Block) -> ndarray:
        values = vectors(self.name, block.column(self.name), len(self.fill))
        filled = np.where(np.isnan(values), self.fill, values)
        return self.within(filled)

    def within(self, values: ndarray) -> ndarray:
        """Return rows of numbers without outliers."""
        out = clip_far(values, self.low, self.high)
        wild = self.wild
        out[:, wild] = compress(values[:, wild], self.middle[wild], self.width[wild])
        return out

    def matrix(self, x: ndarray) -> ndarray:
        """Return the matrix itself if it has no outliers, otherwise one without them, float32."""
        if x.shape[1] != len(self.low):
            return x  # for the model to refuse, with the width that it was fitted with
        far = np.zeros(x.shape[1], np.int64)  # outliers per column
        for part in _native.blocks(x):
            # NaN is neither, so it does not count.
            is_far = (x[part] < self.low) | (x[part] > self.high)
            far += is_far.sum(0)
        if not far.any() and not self.wild.any():
            return x
        if far.max() > MANY * len(x):
            share = far.max() / len(x)
            warnings.warn(
                f"{share:.0%} of the values in feature column {far.argmax()} lie far outside the "
                "range of the past and are clipped; "
                "check that the column still means the same as before.",
                stacklevel=2,
            )
        out = new_features(x.shape, in_file=_native.mapping(x) is not None)
        for part in _native.blocks(x):
            out[part] = self.within(x[part])
        return out


@dataclass(frozen=True, eq=False)
class ColumnScales:
    """The scale of columns [f]: bounds for later numbers, middle, usual width, and wildness."""

    low: ndarray
    high: ndarray
    middle: ndarray
    width: ndarray
    wild: ndarray


def column_scales(sample: ndarray, low: ndarray, high: ndarray) -> ColumnScales:
    """Return the scale of columns, by a sample of their rows [n, f] and their extremes [f].

    A column is wild if it has outliers, or if float32 cannot hold its numbers or their differences.
    """
    quantiles = np.quantile(sample, [0.01, 0.25, 0.5, 0.75, 0.99], axis=0)
    lowest, first, middle, third, highest = quantiles
    # Halves, because the difference of two large numbers may overflow.
    half = third / 2 - first / 2
    # If half of the values are the same, the usual width is that of nearly all, or of all.
    for wider in (highest / 2 - lowest / 2, high / 2 - low / 2, 0.5):
        half = np.where(half > 0, half, wider)
    # Largest magnitude of every column, and half of the largest distance from the middle.
    size = np.maximum(high, -low)
    farthest = np.maximum(high / 2 - middle / 2, middle / 2 - low / 2)
    with np.errstate(over="ignore"):
        # Outliers far from the middle.
        wild = farthest > WILD * half
        # Too large or too small for float32.
        wild |= size > LARGEST
        wild |= (size > 0) & (size < SMALLEST)
        # Too close together.
        wild |= half < FINE / 2 * np.abs(middle)
        reach = np.where(wild, 0.0, FAR * (high - low))
        width = np.minimum(2 * half, np.finfo(np.float64).max)
    return ColumnScales(low=low - reach, high=high + reach, middle=middle, width=width, wild=wild)


def clip_far(values: ndarray, low: ndarray | float, high: ndarray | float) -> ndarray:
    """Return values between the bounds as they are, and others as about the known extreme."""
    # Bounds lie `FAR` ranges outside the known extremes; `edge` leads back to these.
    edge = FAR / (1 + 2 * FAR) * (high - low)
    clipped = np.where(values > high, high - edge, values)
    return np.where(values < low, low + edge, clipped)


def compress(
    values: ndarray,
    middle: ndarray | float,
    width: ndarray | float,
) -> ndarray:
    """Return distances from the middle in usual widths, logarithmic beyond one width."""
    with np.errstate(over="ignore"):
        # Halved before the difference, which may overflow.
        distance = (values.astype(np.float64) / 2 - middle / 2) / width * 2
    size = np.abs(distance)
    logarithm = np.log(np.maximum(size, 1)).clip(max=MAX_LOGARITHM)
    compressed = np.sign(distance) * (1 + logarithm)
    return np.where(size <= 1, distance, compressed)


class OutcomeNumber(Number):
    """A number that is known after the event; a missing one stays missing."""

    kind: ClassVar[str] = OUTCOME

    @property
    def outputs(self) -> list[str]:
        return [self.name]

    def encode(self, block: Block) -> ndarray:
        missing = np.isnan(self.values(self.name, block))
        encoded = super().encode(block).reshape(len(missing), -1)
        return np.where(missing, np.nan, encoded[:, 0])


PART_CLASSES: tuple[type[Part], ...] = (Number, Date, Category, Text, Vector, OutcomeNumber)
PARTS = {part.kind: part for part in PART_CLASSES}


@dataclass(frozen=True, eq=False)
class Encoder:
    """The encodings of columns by name, and the columns that are dropped, with the reason.

    `outcomes` encodes the columns that are known after the event only, which are no features.

    Examples:
        >>> colours = ["red", "blue", "red", "red"]
        >>> table = pa.table({"age": [20, 30, None, 50], "colour": colours, "one": [1, 1, 1, 1]})
        >>> columns = Columns(table, {"age": "number", "colour": "category", "one": "number"})
        >>> columns.encoder.outputs, columns.encoder.dropped
        (['age', 'age is missing', 'colour = blue', 'colour = red'], {'one': 'it is constant before
        the cutoff'})
        >>> columns.x.tolist()[2]
        [30.0, 1.0, 0.0, 1.0]
    """

    parts: tuple[Part, ...]
    dropped: dict[str, str]
    outcomes: Encoder | None = None

    @classmethod
    @_native.one_thread
    def fit(cls, columns: Columns) -> Encoder:
        """Learn from the known rows of `columns`, and from nothing else."""
        sample = columns.sample(SAMPLE)
        later = sample
        if OUTCOME in columns.kinds.values():
            # Outcomes may be known later than the row itself.
            later = replace(columns, known=columns.over).sample(SAMPLE)
        parts: list[Part] = []
        outcomes: list[Part] = []
        dropped: dict[str, str] = {}
        for name, kind in columns.kinds.items():
            try:
                if kind == OUTCOME:
                    if len(outcomes) == MOST_OUTCOMES:
                        raise Dropped(f"only the first {MOST_OUTCOMES} outcomes are read")
                    outcomes.append(_outcome(name, later))
                else:
                    parts.append(PARTS[kind].fit(name, sample))
            except Dropped as reason:
                dropped[name] = str(reason)
        encoder = cls(tuple(parts), dropped)
        if not outcomes:
            return encoder
        return replace(encoder, outcomes=cls(tuple(outcomes), {}))

    @classmethod
    def of_matrix(cls, x: ndarray, known: ndarray | None) -> Encoder:
        """Learn from a matrix of features, whose columns have no names."""
        return cls((Vector.of(MATRIX, x, known),), {})

    @property
    def is_of_matrix(self) -> bool:
        return [part.name for part in self.parts] == [MATRIX]

    def matrix(self, x: ndarray) -> ndarray:
        """Return a matrix without outliers."""
        assert isinstance(self.parts[0], Vector)
        return self.parts[0].matrix(x)

    @property
    def outputs(self) -> list[str]:
        """Names of the features."""
        return [name for part in self.parts for name in part.outputs]

    @property
    def number_positions(self) -> ndarray:
        """Positions of the features that are numbers: not categories, words or vectors."""
        if self.is_of_matrix:
            return np.arange(len(self.outputs))
        names = [part.name for part in self.parts if isinstance(part, Number)]
        return np.flatnonzero(np.isin(self.outputs, names))

    def encode(self, columns: Columns) -> ndarray:
        """Return the features [N, f]; refuse columns that are missing or of another type."""
        available = columns.table.column_names
        missing = [part.name for part in self.parts if part.name not in available]
        if missing:
            raise InputError(
                f"the feature columns {listing(missing)} are missing, but the model needs them; "
                f"the columns are {listing(available) or 'none'}."
            )
        for part in self.parts:
            part.require_kind(columns.table.column(part.name))
        widths = [len(part.outputs) for part in self.parts]
        # One after the last column of every part.
        ends = np.cumsum(widths)
        out = new_features((len(columns), sum(widths)), in_file=columns.mapped)

        def fill(rows: slice) -> None:
            block = columns.block(rows)
            for part, end, width in zip(self.parts, ends, widths, strict=True):
                # by its number: numpy copies a slice of one column several times slower
                if width == 1:
                    out[rows, end - 1] = part.encode(block).reshape(-1)
                else:
                    out[rows, end - width : end] = part.encode(block)

        tasks = [(rows,) for rows in columns.spans()]
        _native.run(fill, tasks, None)
        return out

    def new(self, columns: Columns) -> list[str]:
        """Return columns that are unknown to the encoder."""
        known = {part.name for part in self.parts} | self.dropped.keys()
        if self.outcomes is not None:
            known |= {part.name for part in self.outcomes.parts}
        return [name for name in columns.kinds if name not in known]

    def silent(self, columns: Columns) -> list[str]:
        """Return columns that are empty or hold only unknown values, in a sample of rows."""
        block = replace(columns, known=None).sample(LOOK)
        return [part.name for part in self.parts if part.silent(block)]

    # -- disk

    def content(self) -> dict[str, Any]:
        """Return all fields but the arrays, for JSON."""
        parts = []
        for part in self.parts:
            entry = {"kind": part.kind}
            for name, value in vars(part).items():
                # Arrays are saved in a file of their own.
                if not isinstance(value, ndarray):
                    entry[name] = encode(value)
            parts.append(entry)
        content: dict[str, Any] = {"parts": parts, "dropped": self.dropped}
        if self.outcomes is not None:
            # Numbers and categories of few values have no arrays.
            content[OUTCOME] = self.outcomes.content()
        return content

    def arrays(self) -> dict[str, ndarray]:
        arrays = {}
        for k, part in enumerate(self.parts):
            for name, value in vars(part).items():
                if isinstance(value, ndarray):
                    arrays[f"{k}.{name}"] = value
        return arrays

    @classmethod
    def restored(cls, content: Mapping[str, Any], arrays: Mapping[str, ndarray]) -> Encoder:
        """Return the encoder that `content` and `arrays` describe."""
        parts = []
        for k, entry in enumerate(content["parts"]):
            # The class of a part says which of its fields are arrays.
            part_class: Any = PARTS[entry["kind"]]
            hints = get_type_hints(part_class)
            names = [name for name, hint in hints.items() if hint is ndarray]
            values = {name: arrays[f"{k}.{name}"] for name in names}
            for name, value in entry.items():
                if name != "kind":
                    values[name] = decode(hints[name], value, name)
            parts.append(part_class(**values))
        dropped = decode(dict[str, str], content["dropped"], "dropped")
        outcomes = None
        if OUTCOME in content:
            outcomes = cls.restored(content[OUTCOME], {})
        return cls(tuple(parts), dropped, outcomes)


def _outcome(name: str, sample: Block) -> Part:
    """Learn an outcome: a number, or one of a few values."""
    kind = typed(sample.column(name)).type
    if is_number(kind) or types.is_boolean(kind):
        return OutcomeNumber.fit(name, sample)
    category = Category.fit(name, sample)
    if category.hashed or len({*category.values} - {Category.missing}) > OUTCOME_VALUES:
        raise Dropped(f"an outcome is a number or one of at most {OUTCOME_VALUES} values")
    return category


def new_features(shape: tuple[int, int], *, in_file: bool = False) -> ndarray:
    """Return an array to fill, in memory or, if it is large, in a temporary file."""
    size = 4 * shape[0] * shape[1]
    if size < LARGE:
        return np.empty(shape, np.float32)
    # A matrix that fits, and whose source is not mapped, stays in memory.
    if not in_file and size <= _native.free_memory() // 4:
        # numpy requests huge pages, whose first touch is slow where memory is fragmented.
        memory = mmap.mmap(-1, size)
        return np.frombuffer(memory, np.float32).reshape(shape)
    folder = tempfile.TemporaryDirectory(prefix="impact-features-")
    _files.require_space(Path(folder.name), size)
    out = _files.create_array(Path(folder.name) / "x.npy", np.float32, shape)
    # The file lives as long as the array.
    weakref.finalize(out, folder.cleanup)
    return out
