"""Where tables lie: data frames, CSV and Parquet files, databases. Each is read whole, or in batches."""

from __future__ import annotations

import contextlib
import functools
import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

from impact_gnn.checks import InputError, guarded, listing, one_line, shown
from impact_gnn.encoding.kinds import MISSING

CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TYPES = (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us"), pa.string())
"""What a column of a CSV may be that is read in batches, the narrowest first."""
ROWS = 1 << 18  # of a batch
FREED = 8  # batches after which memory goes back
SMALL = 1 << 26  # bytes up to which a file is read whole, to be looked at


@dataclass(frozen=True, eq=False)
class Source:
    """A table by the name that a person knows it by."""

    name: str
    whole: Callable[[], pa.Table]
    stream: Callable[[], Iterator[pa.RecordBatch]] | None = None
    size: int = 0  # bytes on disk

    @functools.cached_property
    def table(self) -> pa.Table:
        """The table in memory."""
        with guarded(Path(self.name)):
            table = self.whole()
            # of a frame that is in memory the types are enough
            table.validate(full=self.stream is not None)
        return self._checked(table)

    @functools.cached_property
    def head(self) -> pa.Table:
        """The first rows, by which roles are guessed."""
        if self.size < SMALL:
            return usual_text(self.table.slice(0, ROWS))
        return self._checked(pa.Table.from_batches([next(self.batches())]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The table piece by piece; what was read whole to be looked at is let go."""
        self.__dict__.pop("table", None)
        if self.stream is None:
            yield from self.table.to_batches()
            return
        with guarded(Path(self.name)):
            for number, batch in enumerate(self.stream()):
                batch.validate(full=True)
                yield batch
                if number % FREED == 0:
                    give_back()
            give_back()

    def _checked(self, table: pa.Table) -> pa.Table:
        """Columns of one name are refused."""
        columns = table.column_names
        repeated = sorted({column for column in columns if columns.count(column) > 1})
        if repeated:
            raise InputError(
                f"{self.name} has several columns called {listing(repeated)}; rename them."
            )
        return table


def give_back() -> None:
    """Memory that Arrow has freed, and would keep, to the system."""
    pa.default_memory_pool().release_unused()


def usual_text(table: pa.Table) -> pa.Table:
    """Views and dictionaries of text as text: not everything can be done with those."""
    for place, name in enumerate(table.column_names):
        kind = table.schema.types[place]
        if pa.types.is_dictionary(kind):
            value = (
                pa.large_string() if pa.types.is_string_view(kind.value_type) else kind.value_type
            )
            chunks = [
                pa.DictionaryArray.from_arrays(
                    chunk.indices, chunk.dictionary.cast(value)
                ).dictionary_decode()
                for chunk in table.column(name).chunks
            ]
            table = table.set_column(place, name, pa.chunked_array(chunks, value))
            kind = value
        if pa.types.is_string_view(kind):
            table = table.set_column(place, name, table.column(name).cast(pa.large_string()))
    return table


# -- data frames
# -------------------------------------------------------------------------------------------


def from_frame(name: str, frame: Any, *, indexed: bool = False) -> Source:
    """Any data frame that narwhals knows (pandas, polars, pyarrow, DuckDB, Ibis, ...), or a mapping of columns.

    The index of a pandas frame may name the rows (`indexed`); then it is a column.
    """
    import narwhals as nw

    if isinstance(frame, Source):
        return frame
    if type(frame).__module__.startswith("pandas") and hasattr(frame, "reset_index"):
        index = frame.index
        says = index.is_unique and not np.array_equal(index, np.arange(len(frame)))
        frame = frame.reset_index(drop=not (indexed and says))
    if isinstance(frame, np.ndarray) and frame.ndim == 2 and len(frame) == 2:
        frame = {"source": frame[0], "target": frame[1]}  # an edge list of ids
    try:
        if isinstance(frame, Mapping):
            columns = {
                str(key): v if isinstance(v, pa.Array | np.ndarray) else list(v)
                for key, v in frame.items()
            }
            table = pa.table({key: pa.array(values) for key, values in columns.items()})
        else:
            known = nw.from_native(frame)
            known = known.collect("pyarrow") if isinstance(known, nw.LazyFrame) else known
            # polars shows its text as it is through Arrow's interface, and copies it otherwise.
            table = pa.table(frame) if known.implementation.is_polars() else known.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        reason = one_line(error)
        raise InputError(
            f"{name} has a column that cannot be read ({reason}); give it one type."
        ) from None
    except TypeError:
        kind = type(frame).__name__
        raise InputError(
            f"{name} is a {kind}; give a data frame (pandas, polars, pyarrow, DuckDB, Ibis)."
        ) from None
    except Exception as error:  # a query that fails in its own engine
        raise InputError(f"{name} cannot be read ({one_line(error)}); mend the frame.") from None
    return Source(name, lambda: table)


# -- files
# -------------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, Source]:
    """The tables of a folder by their names without suffix; a sub-folder of Parquet files is one table."""
    out: dict[str, Source] = {}
    for path in sorted(folder.iterdir()):
        source = file(path)
        if source is None:
            continue
        stem = path.name.split(".")[0]
        if stem in out:
            raise InputError(
                f"{folder} holds both {out[stem].name} and {path.name}; keep one of them."
            )
        out[stem] = source
    return out


def file(path: Path) -> Source | None:
    """The table in a file, or a folder of Parquet files; None if it is none."""
    if path.name.endswith(CSV) and path.is_file():
        size = path.stat().st_size * (5 if path.suffix == ".gz" else 1)
        return Source(path.name, lambda: _read_csv(path), lambda: _stream_csv(path), size)
    if path.suffix == ".parquet" or (path.is_dir() and any(path.rglob("*.parquet"))):
        parts = list(path.rglob("*.parquet")) if path.is_dir() else [path]

        def dataset() -> pa.dataset.Dataset:
            found = pa.dataset.dataset(path, format="parquet", partitioning="hive")
            # files may have columns of their own
            schemas = [part.physical_schema for part in found.get_fragments()]
            return found.replace_schema(
                pa.unify_schemas([found.schema, *schemas], promote_options="permissive")
            )

        def whole() -> pa.Table:
            if path.is_dir():
                return dataset().to_table()
            # its folder's name is no column
            return pa.parquet.read_table(path, memory_map=True, partitioning=None)

        def stream() -> Iterator[pa.RecordBatch]:
            # Reading ahead would hold much of the file.
            if path.is_dir():
                ahead = pa.dataset.ParquetFragmentScanOptions(pre_buffer=False)
                options: Any = {
                    "batch_readahead": 1,
                    "fragment_readahead": 1,
                    "fragment_scan_options": ahead,
                }
                return iter(dataset().to_batches(batch_size=ROWS, **options))
            return pa.parquet.ParquetFile(path, pre_buffer=False).iter_batches(ROWS)

        return Source(path.name, whole, stream, sum(part.stat().st_size for part in parts))
    return None


def _csv_options(path: Path, types: Any = None) -> tuple[Any, Any]:
    """How a CSV is read: the delimiter is whatever splits its first line most; quoted values may hold line ends."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as lines:
        head = lines.read(1 << 20)
    first = head.split(b"\n", 1)[0]
    delimiter = max(",;\t|", key=lambda mark: first.count(mark.encode()))
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in head)
    return parse, pa.csv.ConvertOptions(
        null_values=list(MISSING), strings_can_be_null=True, column_types=types
    )


def _read_csv(path: Path) -> pa.Table:
    with _opened_csv(path) as first:
        names = first.schema.names
    with _opened_csv(path, dict.fromkeys(names, pa.string())) as rows:
        first = next(iter(rows), None)
    padded = [
        name
        for name in names
        if first is not None and names.count(name) == 1 and _padded(first.column(name))
    ]
    parse, convert = _csv_options(path, dict.fromkeys(padded, pa.string()))
    return pa.csv.read_csv(path, parse_options=parse, convert_options=convert)


def _opened_csv(
    path: Path, types: dict[str, pa.DataType] | None = None
) -> pa.csv.CSVStreamingReader:
    parse, convert = _csv_options(path, types)
    read = pa.csv.ReadOptions(block_size=1 << 24)
    return pa.csv.open_csv(path, read_options=read, parse_options=parse, convert_options=convert)


def _padded(column: pa.Array) -> bool:
    """Whether a number would lose digits of some values: 007 is a name, and so is what 64 bits cannot hold."""
    return bool(pc.any(pc.match_substring_regex(column, r"^(0\d+|\d{19,})$")).as_py())


def _stream_csv(path: Path) -> Iterator[pa.RecordBatch]:
    """Batches of a CSV. Arrow guesses types by the first one, so a pass before finds types that suit all."""
    names = _opened_csv(path).schema.names
    if len(set(names)) < len(names):
        raise InputError(f"{path.name} has several columns of one name; rename them.")
    types = {name: list(TYPES) for name in names}
    for batch in _opened_csv(path, dict.fromkeys(names, pa.string())):
        for name, left in types.items():
            while len(left) > 1 and not _casts(batch.column(name), left[0]):
                left.pop(0)
    yield from _opened_csv(path, {name: left[0] for name, left in types.items()})


def _casts(column: pa.Array, kind: pa.DataType) -> bool:
    if kind != pa.string() and _padded(column):
        return False
    try:
        pc.utf8_trim_whitespace(column).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


# -- databases
# ---------------------------------------------------------------------------------------------


def is_database(text: str) -> bool:
    """Whether a text is "duckdb:FILE" or the URL of a database, and not a path."""
    return text.startswith("duckdb:") or ("://" in text and not Path(text).exists())


def database(url: str) -> dict[str, Source]:
    """The tables of a database by name."""
    if url.startswith("duckdb:") and "://" not in url:
        return _duckdb(Path(url.removeprefix("duckdb:")))
    try:
        import sqlalchemy
    except ImportError:
        raise InputError("databases need SQLAlchemy; pip install 'impact-gnn[sql]'.") from None
    file = re.match(r"sqlite:///(.+)", url)
    if file is not None and not Path(file[1]).is_file():  # SQLite would make an empty one
        raise InputError(f"{file[1]} does not exist; give sqlite:///FILE.")
    with _said(url):
        engine = sqlalchemy.create_engine(url)
        names = (
            sqlalchemy.inspect(engine).get_table_names()
            + sqlalchemy.inspect(engine).get_view_names()
        )

    def whole(name: str) -> pa.Table:
        table = sqlalchemy.Table(name, sqlalchemy.MetaData(), autoload_with=engine)
        with engine.connect() as connection:
            rows = connection.execute(sqlalchemy.select(table))
            columns = list(rows.keys())
            values = list(zip(*rows, strict=True)) or [()] * len(columns)
        return pa.table([pa.array(list(column)) for column in values], names=columns)

    return {name: Source(name, functools.partial(whole, name)) for name in names}


def _duckdb(path: Path) -> dict[str, Source]:
    try:
        import duckdb
    except ImportError:
        raise InputError(
            "DuckDB files need the package duckdb; pip install 'impact-gnn[sql]'."
        ) from None
    if not path.is_file():
        raise InputError(f"{path} does not exist; give duckdb:FILE.")
    with _said(str(path)):
        connection = duckdb.connect(str(path), read_only=True)
        names = [
            row[0]
            for row in connection.execute(
                "select table_name from information_schema.tables"
            ).fetchall()
        ]

    def relation(name: str) -> Any:
        return connection.table('"' + name.replace('"', '""') + '"')

    def source(name: str) -> Source:
        return Source(
            name,
            lambda: relation(name).to_arrow_table(),
            lambda: iter(relation(name).to_arrow_reader(ROWS)),
        )

    return {name: source(name) for name in names}


@contextlib.contextmanager
def _said(where: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # every driver has errors of its own
        raise InputError(
            f"{shown(where)} cannot be opened ({one_line(error)}); check the address and the driver."
        ) from None
