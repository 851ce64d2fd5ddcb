"""Tables in data frames, CSV and Parquet files and databases, read whole or in batches."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import io
import json
import re
import sqlite3
import tempfile
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

from impact_gnn._text import mask_passwords
from impact_gnn.checks import InputError, fits, guarded, listing, one_line, quoted, regular
from impact_gnn.encoding.kinds import MISSING
from impact_gnn.encoding.moments import all_match, any_match, decoded

CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TYPES = (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us"), pa.string())
"""Types of a CSV column, the narrowest first."""
BLOCK = 1 << 24  # bytes of a CSV that are read together
ROWS = 1 << 18  # rows of a batch
UNNAMED = "Unnamed: "  # with its position, the name of a column whose name is blank
UNNAMED_INDEX = "__index_level_0__"  # the name of an index without one in a file of pandas
SMALL = 1 << 26  # bytes up to which a file is read whole for a look at its head


@dataclass(frozen=True)
class FurtherColumn:
    """A column that a table has got.

    `values` returns its values in a part of the table, whose first row has this number. It reads
    the columns `exact` as they are written.
    """

    name: str
    values: Callable[[pa.Table, int], pa.ChunkedArray]
    exact: tuple[str, ...] = ()


Tables: TypeAlias = "Mapping[str, Source]"


@dataclass(frozen=True, eq=False)
class Source:
    """A table by the name that a user knows it by."""

    name: str
    read: Callable[[], pa.Table]
    stream: Callable[[], Iterable[pa.RecordBatch]] | None = None
    size: int = 0  # bytes on disk
    exact: Callable[[frozenset[str]], Source] | None = None
    notes: Callable[[], list[str]] = list  # on how the file was read; ask when it was
    further: tuple[FurtherColumn, ...] = ()

    def as_written(self, columns: Iterable[str | None]) -> Source:
        """Return the same table with these columns as whole numbers, or text exactly as written.

        Only a CSV has to guess types; other tables have their own.
        """
        if self.exact is None:
            return self
        exact = chain(columns, *(column.exact for column in self.further))
        source = self.exact(frozenset(filter(None, exact)))
        return replace(source, further=self.further)

    def with_column(self, column: FurtherColumn) -> Source:
        """Return the table with a further column."""
        return replace(self, further=(*self.further, column)).as_written(())

    @functools.cached_property
    def table(self) -> pa.Table:
        """The table in memory."""
        with guarded(Path(self.name)):
            table = self.read()
            # for a frame in memory, a check of the types is enough
            table.validate(full=self.stream is not None)
            return self._completed(table, 0)

    @functools.cached_property
    def head(self) -> pa.Table:
        """The first rows, by which roles are guessed."""
        if self.size < SMALL:
            return plain_text(self.table.slice(0, ROWS))
        first = pa.Table.from_batches([next(self.batches())])
        return plain_text(first.slice(0, ROWS))

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return self.head.column_names

    def description(self, origins: str) -> list[str]:
        """Return lines on the table and where the roles of its columns come from."""
        return [f"{self.name}: {origins}", *(f"  {note}" for note in self.notes())]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the table in batches; a table that was read whole for its head is freed."""
        self.__dict__.pop("table", None)
        if self.stream is None:
            yield from self.table.to_batches()
            return
        first_row = 0
        with guarded(Path(self.name)):
            for batch in self.stream():
                batch.validate(full=True)
                part = pa.Table.from_batches([batch])
                yield from self._completed(part, first_row).to_batches()
                first_row += batch.num_rows
                release_memory()

    def _completed(self, part: pa.Table, first_row: int) -> pa.Table:
        """Return a part of the table with all its columns under their names."""
        part = self._named(part)
        for column in self.further:
            part = part.append_column(column.name, column.values(part, first_row))
        return part

    def _named(self, part: pa.Table) -> pa.Table:
        """Name columns without a name as pandas does; refuse the same name twice."""
        names = [column_name(place, name) for place, name in enumerate(part.schema.names)]
        # Arrow allows the same name twice, and then refuses to select a column by it.
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            raise InputError(
                f"{self.name} has duplicate column names {listing(repeated)}; rename them, "
                "or write a header above these values."
            )
        return part.rename_columns(names)


def column_name(place: int, name: str) -> str:
    """Return the name of a column; of one without a name, that which pandas gives it."""
    return name if name.strip() else f"{UNNAMED}{place}"


def release_memory() -> None:
    """Return memory that Arrow has freed to the system."""
    pa.default_memory_pool().release_unused()


def plain_text(table: pa.Table) -> pa.Table:
    """Return views and dictionaries of text as text, which supports all operations."""
    return pa.table(list(map(decoded, table.columns)), names=table.column_names)


# -- data frames


def from_frame(name: str, frame: Any, *, indexed: bool = False) -> Source:
    """Read a data frame that narwhals supports, or a mapping of columns.

    The index of a pandas frame may name the rows (`indexed`); then it becomes a column.
    """
    if type(frame).__module__.startswith("pandas") and hasattr(frame, "columns"):
        frame = _from_pandas(name, frame, indexed)
    if isinstance(frame, np.ndarray) and frame.ndim == 2 and len(frame) == 2:
        frame = {"source": frame[0], "target": frame[1]}  # an edge list of ids
    try:
        table = _as_arrow(name, frame)
    except InputError:
        raise
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"{name} has a column that cannot be read ({one_line(error)}); convert it to one type."
        ) from None
    except TypeError:
        raise InputError(
            f"{name} is a {type(frame).__name__}; "
            "pass a data frame (pandas, polars, pyarrow, DuckDB, Ibis)."
        ) from None
    # Lazy frames run a query now, which may fail in any way.
    except Exception as error:  # a query that fails in its own engine
        raise InputError(
            f"{name} cannot be read ({one_line(error)}); fix the data frame."
        ) from None
    return Source(name, lambda: table)


def _from_pandas(name: str, frame: Any, indexed: bool) -> Any:
    """Return a pandas frame without index, sparse columns and periods."""
    index = frame.index
    # An index 0, 1, 2, ... without a name is only the order of the rows.
    is_order = np.array_equal(index, np.arange(len(frame))) or not index.is_unique
    is_named = any(name is not None for name in index.names)
    is_column = not frame.columns.intersection(index.names).empty  # it is both
    names_rows = indexed and not is_column and (is_named or not is_order)
    frame = frame.reset_index(drop=not names_rows)
    types = {}
    for column, kind in frame.dtypes.items():
        if type(kind).__name__ == "SparseDtype":
            types[column] = kind.subtype
        if type(kind).__name__ == "PeriodDtype":
            types[column] = "M8[us]"  # its start
    size = 8 * len(frame) * len(types)
    fits(
        f"the {len(types):,} columns of sparse numbers or periods of {name}",
        size,
        "use fewer columns",
    )
    return frame.astype(types)


def _as_arrow(name: str, frame: Any) -> pa.Table:
    import narwhals as nw

    if isinstance(frame, Mapping):
        if len(set(map(str, frame))) < len(frame):
            raise InputError(
                f"{name} has several column names that are equal as text, "
                f"among {listing(list(map(repr, frame)))}; rename them."
            )
        columns = {}
        for key, values in frame.items():
            if not isinstance(values, pa.Array | np.ndarray):
                # Periods of pandas become their start.
                values = [getattr(value, "start_time", value) for value in values]
            columns[str(key)] = pa.array(values, from_pandas=True)  # NaT is missing
        return pa.table(columns)
    native = nw.from_native(frame)
    if isinstance(native, nw.LazyFrame):
        native = native.collect("pyarrow")
    if native.implementation.is_polars():
        return pa.table(frame)  # shares the text, which narwhals would copy
    return native.to_arrow()


# -- files


def files(folder: Path) -> dict[str, Source]:
    """Return the tables of a folder by their names without suffix.

    A sub-folder of Parquet files is one table.
    """
    out: dict[str, Source] = {}
    for path in sorted(folder.iterdir()):
        source = file(path)
        if source is None or path.name.startswith("."):  # files of the system
            continue
        stem = path.name.split(".")[0]
        if stem in out:
            raise InputError(
                f"{folder} contains both {out[stem].name} and {path.name}; keep one of them."
            )
        out[stem] = source
    return out


def file(path: Path) -> Source | None:
    """Return the table in a file, or in a folder of Parquet files; None if there is none."""
    if path.name.lower().endswith(CSV) and path.is_file():
        return _Csv(path).source(frozenset())
    if path.is_dir() and any(path.rglob("*.parquet")):
        return _parquet_folder(path)
    if path.suffix.lower() == ".parquet":
        return _parquet_file(path)
    return None


def _parquet_file(path: Path) -> Source:
    def read() -> pa.Table:
        # the name of its folder is no column
        table = pa.parquet.read_table(path, memory_map=True, partitioning=None)
        return _with_pandas_index(table, 0, table.num_rows)

    def stream() -> Iterator[pa.RecordBatch]:
        # reading ahead would hold much of the file
        file = pa.parquet.ParquetFile(path, pre_buffer=False)
        first_row = 0
        for batch in file.iter_batches(ROWS):
            part = pa.Table.from_batches([batch])
            yield from _with_pandas_index(part, first_row, file.metadata.num_rows).to_batches()
            first_row += batch.num_rows

    return Source(path.name, read, stream, path.stat().st_size)


def _with_pandas_index(part: pa.Table, first_row: int, num_rows: int) -> pa.Table:
    """Return a part of a file with the index that pandas has stored there.

    One of consecutive numbers is in the metadata only, and one without a name has an odd name.
    """
    metadata = json.loads((part.schema.metadata or {}).get(b"pandas", "{}"))
    for index in metadata.get("index_columns", []):
        if not isinstance(index, dict):
            continue
        numbers = range(index["start"], index["stop"], index["step"])
        # From 0 on, it is only the order; of another length, it is that of another table.
        if numbers != range(num_rows) and len(numbers) == num_rows:
            values = pa.array(numbers[first_row : first_row + part.num_rows])
            part = part.append_column(index["name"] or UNNAMED_INDEX, values)
    names = ["index" if name == UNNAMED_INDEX else name for name in part.column_names]
    return part.rename_columns(names)


def _parquet_folder(path: Path) -> Source:
    def dataset() -> pa.dataset.Dataset:
        dataset = pa.dataset.dataset(path, format="parquet", partitioning="hive")
        # files may have columns of their own
        schemas = [part.physical_schema for part in dataset.get_fragments()]
        schema = pa.unify_schemas([dataset.schema, *schemas], promote_options="permissive")
        # An index of pandas is that of one file.
        return dataset.replace_schema(schema.remove_metadata())

    def stream() -> Iterable[pa.RecordBatch]:
        return dataset().to_batches(
            batch_size=ROWS,
            batch_readahead=1,
            fragment_readahead=1,
            fragment_scan_options=pa.dataset.ParquetFragmentScanOptions(pre_buffer=False),
        )

    size = sum(part.stat().st_size for part in path.rglob("*.parquet"))
    return Source(path.name, lambda: dataset().to_table(), stream, size)


@dataclass(frozen=True, eq=False)
class _Csv:
    """A CSV file; all values of a column decide its type."""

    path: Path
    # the number of short rows and the bytes with these filled up; empty for regular files
    _filled: list[Any] = field(default_factory=list)

    def source(self, exact: frozenset[str]) -> Source:
        """Return the table, in which the columns `exact` are whole numbers or text as written."""
        # About how much smaller text is when compressed.
        factor = 5 if self.path.suffix == ".gz" else 1

        def typed() -> dict[str, Any]:
            return self._input(self._types(exact))

        return Source(
            self.path.name,
            read=lambda: pa.csv.read_csv(**typed()),
            stream=lambda: pa.csv.open_csv(**typed()),
            size=factor * self.path.stat().st_size,
            exact=lambda more: self.source(exact | more),
            notes=self._notes,
        )

    def _notes(self) -> list[str]:
        if not self._filled:
            return []
        return [
            f"{self._filled[0]:,} rows have too few values; "
            "the last columns are read as missing there"
        ]

    def _input(self, types: dict[str, pa.DataType] | None = None) -> dict[str, Any]:
        """Return the file, or its bytes with short rows filled up, and the options to read it."""
        return {
            "input_file": pa.BufferReader(self._filled[1]) if self._filled else self.path,
            "read_options": pa.csv.ReadOptions(block_size=BLOCK),
            # a text between quotes may contain line breaks
            "parse_options": pa.csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
            ),
            "convert_options": pa.csv.ConvertOptions(
                null_values=list(MISSING),
                strings_can_be_null=True,
                column_types=types,
            ),
        }

    def _fill_short_rows(self) -> bool:
        """Fill up rows that end early, as some exports leave out empty values; False without any.

        Rows that are too long are not changed, so that Arrow refuses them.
        """
        if self.path.stat().st_size > SMALL:  # rows of Python take many times its size
            return False
        with self._open() as file:
            lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
            rows = list(csv.reader(lines, delimiter=self._delimiter))
        width = len(rows[0])
        short = [place for place, row in enumerate(rows) if 0 < len(row) < width]
        if not short or short == [len(rows) - 1]:  # a file that was cut off
            return False
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self._delimiter)
        for row in filter(None, rows):
            missing = width - len(row)
            writer.writerow(row + [""] * missing)
        self._filled[:] = [len(short), text.getvalue().encode()]
        return True

    def _open(self) -> gzip.GzipFile | io.BufferedReader:
        if self.path.suffix.lower() == ".gz":
            return gzip.open(self.path)
        return self.path.open("rb")

    @functools.cached_property
    def _delimiter(self) -> str:
        """The mark that splits the first line most."""
        with self._open() as lines:
            # Without quoted names, which may contain any mark.
            first = re.sub('"[^"]*"', "", lines.readline(1 << 20).decode())
        return max(",;\t|", key=first.count)

    def _types(self, exact: frozenset[str]) -> dict[str, pa.DataType]:
        """Return the type of every column; those of `exact` are whole numbers or text."""
        types = {}
        # Arrow knows a column without a name as "", users as "Unnamed: 3".
        for place, (name, column) in enumerate(self._columns.items()):
            is_exact = column_name(place, name) in exact
            types[name] = column.exact if is_exact else column.type
        return types

    @functools.cached_property
    def _columns(self) -> dict[str, _ColumnType]:
        """The possible types of every column, after a pass over the whole file as text."""
        try:
            return self._column_types()
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
                raise InputError(
                    f"{self.path.name} is not UTF-8 text; save it as CSV in UTF-8."
                ) from None
            match = re.search(r"Expected (\d+) columns, got (\d+)", str(error))
            is_short = match is not None and int(match[2]) <= int(match[1])
            if not is_short or not self._fill_short_rows():
                raise
            return self._column_types()

    def _column_types(self) -> dict[str, _ColumnType]:
        with pa.csv.open_csv(**self._input()) as reader:
            names = reader.schema.names
        columns = {name: _ColumnType() for name in names}
        as_text = self._input(dict.fromkeys(names, pa.string()))
        with pa.csv.open_csv(**as_text) as batches:
            for batch in batches:
                for name, values in zip(names, batch.columns, strict=True):
                    columns[name].update(values)
        return columns


class _ColumnType:
    """The possible types of a column of text, by all values so far."""

    def __init__(self) -> None:
        self._possible = list(TYPES)
        self._is_canonical = True
        self._is_empty = True

    @property
    def type(self) -> pa.DataType:
        """The narrowest type that suits every value."""
        return pa.string() if self._is_empty else self._possible[0]

    @property
    def exact(self) -> pa.DataType:
        """Whole numbers where every value is the text of one; otherwise text."""
        return pa.int64() if self._is_canonical and not self._is_empty else pa.string()

    def update(self, column: pa.Array) -> None:
        """Test more values: every type for every value, wherever blocks begin."""
        column = column.drop_null()
        if not len(column):
            return
        self._is_empty = False
        numbers = canonical_numbers(column)
        if numbers is None:
            self._is_canonical = False
            self._possible = [kind for kind in self._possible if _casts(column, kind)]
            return
        suitable = [pa.int64(), pa.string()]
        extremes = pc.min_max(numbers).as_py()
        if max(-extremes["min"], extremes["max"]) < 10**18:
            suitable.append(pa.float64())
        self._possible = [kind for kind in self._possible if kind in suitable]


CODE = r"^[-+]?(0\d+|\d{19,}|0[xX].*)$"
"""Text that is a name, as a number would lose its digits: 007, or more than 64 bits."""
DATE = r"^\d{4}-\d{2}-\d{2}([T ].*\S)?$"
BOOLEAN = r"^(true|false|True|False|TRUE|FALSE)$"


def canonical_numbers(column: pa.Array) -> pa.Array | None:
    """Return text as whole numbers of 64 bits if all of it would be written the same again."""
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    is_same = pc.equal(numbers.cast(column.type), column)
    return None if pc.all(is_same).as_py() is False else numbers


def _casts(column: pa.Array, kind: pa.DataType) -> bool:
    """Return whether text can be read as a type without loss."""
    if kind == pa.bool_():
        return all_match(column, BOOLEAN)
    if kind == pa.timestamp("us") and not all_match(column, DATE):
        return False
    if kind in (pa.int64(), pa.float64()):
        # In a file, Arrow reads numbers with spaces around them, but not dates and truth values.
        column = pc.utf8_trim_whitespace(column)
        if any_match(column, CODE):
            return False
    try:
        column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


# -- databases


def is_database(text: str) -> bool:
    """Return whether a text is "duckdb:FILE" or the URL of a database, and not a path."""
    return text.startswith("duckdb:") or ("://" in text and not Path(text).exists())


def database(url: str) -> dict[str, Source]:
    """Return the tables of a database by name; it is opened read-only if the driver supports it."""
    if url.startswith("duckdb:") and "://" not in url:
        return _duckdb(Path(url.removeprefix("duckdb:")))
    try:
        import sqlalchemy
    except ImportError:
        raise InputError(
            "databases require SQLAlchemy; run pip install 'impact-gnn[sql]'."
        ) from None
    # Errors of drivers quote the address, which may contain a password.
    with _driver_errors(url):
        address = sqlalchemy.make_url(url)
    options: dict[str, Any] = {}
    if address.get_backend_name() == "duckdb":
        return _duckdb(Path(address.database or ""))
    if address.get_backend_name() == "sqlite":
        uri = _sqlite_uri(address.database or "")
        address = sqlalchemy.make_url("sqlite://")
        options["creator"] = functools.partial(_connect_sqlite, uri)
    with _driver_errors(url, password=str(address.password or "")):
        engine = sqlalchemy.create_engine(address, **options)
        inspector = sqlalchemy.inspect(engine)
        names = inspector.get_table_names() + inspector.get_view_names()

    def read(name: str) -> pa.Table:
        # The driver's values: SQLAlchemy converts by declared types, which may not be exact.
        identifier = engine.dialect.identifier_preparer.quote_identifier(name)
        with engine.connect() as connection:
            query = f"select * from {identifier}"  # noqa: S608 # nosec B608
            rows = connection.exec_driver_sql(query)
            columns = list(rows.keys())
            values = list(map(list, zip(*rows, strict=True))) or [[] for _ in columns]
        for column, entries in zip(columns, values, strict=True):
            if {str, bytes} <= set(map(type, entries)):  # Arrow would read all as bytes
                raise InputError(
                    f"column {quoted(column)} of {name} has text and bytes; convert it to one type."
                )
        return pa.table(list(map(pa.array, values)), names=columns)

    return {name: Source(name, functools.partial(read, name)) for name in names}


def _log_of(path: Path, *endings: str) -> Path:
    """Return the first file beside a database; refuse pipes, which would never end."""
    files = [regular(path.with_name(path.name + ending)) for ending in endings]
    return files[0]


def _sqlite_uri(database: str) -> str:
    """Return the address by which SQLite opens an existing file and creates none."""
    name = database
    if database.startswith("file:"):
        name = urllib.parse.unquote(urllib.parse.urlsplit(database).path)
    if "\0" in name or not Path(name).is_file():
        raise InputError(f"{name or database} does not exist; pass sqlite:///FILE.")
    path = Path(name).resolve()  # where SQLite looks for the log
    log = _log_of(path, "-wal", "-shm", "-journal")
    has_log = log.exists() and log.stat().st_size > 0
    if has_log and not path.with_name(f"{path.name}-shm").exists():
        raise InputError(
            f"{path} was not closed by its last writer; open and close it once with sqlite3."
        )
    with path.open("rb") as file:
        header = file.read(20)
    uri = f"{path.as_uri()}?mode=ro"
    # A write-ahead database without a log is complete, but opening it would create a new log.
    if header[18:20] == b"\2\2" and not has_log:
        uri += "&immutable=1"
    return uri


def _connect_sqlite(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True)
    connection.execute("pragma trusted_schema=off")  # views call no function with side effects
    return connection


@functools.cache
def _spill_directory() -> tempfile.TemporaryDirectory[str]:
    """A folder of this process in which DuckDB spills, not next to a file; views may read it."""
    return tempfile.TemporaryDirectory(prefix="impact-gnn-")


def _duckdb(path: Path) -> dict[str, Source]:
    try:
        import duckdb
    except ImportError:
        raise InputError(
            "DuckDB files require duckdb; run pip install 'impact-gnn[sql]'."
        ) from None
    if not path.is_file():
        raise InputError(f"{path} does not exist; pass duckdb:FILE.")
    _log_of(path, ".wal")
    # Views may contain any SQL: it must not reach other files, nor change these settings.
    config: dict[str, Any] = {
        "enable_external_access": "false",
        "allow_persistent_secrets": "false",
        "lock_configuration": "true",
        "temp_directory": _spill_directory().name,
    }
    query = "select table_name from information_schema.tables where table_schema = 'main'"
    with _driver_errors(str(path)):
        connection = duckdb.connect(str(path.absolute()), read_only=True, config=config)
        names = [name for (name,) in connection.execute(query).fetchall()]

    def source(name: str) -> Source:
        identifier = '"' + name.replace('"', '""') + '"'
        return Source(
            name,
            lambda: connection.table(identifier).to_arrow_table(),
            lambda: connection.table(identifier).to_arrow_reader(ROWS),
        )

    return {name: source(name) for name in names}


@contextlib.contextmanager
def _driver_errors(where: str, *, password: str = "") -> Iterator[None]:
    """Turn an error of a driver into a sentence, in which the password is masked."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # every driver has errors of its own
        reason = one_line(error)
        if password:
            reason = reason.replace(password, "***")
        where = quoted(mask_passwords(where, is_address=True))
        raise InputError(
            f"{where} cannot be opened ({reason}); check the address and the driver."
        ) from None
