"""Where tables lie: data frames, CSV and Parquet files, databases. Each is read whole, or in batches."""

from __future__ import annotations

import contextlib
import functools
import gzip
import tempfile
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

from impact_gnn._text import mask_passwords
from impact_gnn.checks import InputError, fits, guarded, listing, one_line, quoted
from impact_gnn.encoding.kinds import MISSING

CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TYPES = (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us"), pa.string())
"""What a column of a CSV may be, the narrowest first."""
BLOCK = 1 << 24  # bytes of a CSV that are read together
ROWS = 1 << 18  # of a batch
UNNAMED = "Unnamed: "  # with its position, a column whose name is blank
FREED = 8  # batches after which memory goes back
SMALL = 1 << 26  # bytes up to which a file is read whole, to be looked at


@dataclass(frozen=True, eq=False)
class Source:
    """A table by the name that a person knows it by."""

    name: str
    whole: Callable[[], pa.Table]
    stream: Callable[[], Iterator[pa.RecordBatch]] | None = None
    size: int = 0  # bytes on disk
    exact: Callable[[frozenset[str]], Source] | None = None

    def as_written(self, columns: Iterable[str | None]) -> Source:
        """The same table, in which these columns are whole numbers, or text exactly as written.

        Only a CSV has to guess types; other tables have their own.
        """
        return self if self.exact is None else self.exact(frozenset(filter(None, columns)))

    @functools.cached_property
    def table(self) -> pa.Table:
        """The table in memory."""
        with guarded(Path(self.name)):
            table = named(self.whole())
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
                yield named(batch)
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


def named(part: Any) -> Any:
    """A table or batch in which a column without a name is called as pandas calls it."""
    if all(name.strip() for name in part.schema.names):
        return part
    names = enumerate(part.schema.names)
    return part.rename_columns([name if name.strip() else f"{UNNAMED}{k}" for k, name in names])


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
        sparse = {
            column: kind.subtype
            for column, kind in frame.dtypes.items()
            if type(kind).__name__ == "SparseDtype"
        }
        if sparse:
            size = 8 * len(frame) * len(sparse)
            fits(f"the {len(sparse):,} sparse columns of {name}", size, "give fewer columns")
            frame = frame.astype(sparse)
    if isinstance(frame, np.ndarray) and frame.ndim == 2 and len(frame) == 2:
        frame = {"source": frame[0], "target": frame[1]}  # an edge list of ids
    try:
        if isinstance(frame, Mapping):
            if len({str(key) for key in frame}) < len(frame):
                raise InputError(
                    f"{name} has several columns that are called the same as text, "
                    f"among {listing(list(map(repr, frame)))}; rename them."
                )
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
    except InputError:
        raise
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


def files(folder: Path, *, block: int = BLOCK) -> dict[str, Source]:
    """The tables of a folder by their names without suffix; a sub-folder of Parquet files is one table."""
    out: dict[str, Source] = {}
    for path in sorted(folder.iterdir()):
        source = file(path, block=block)
        if source is None:
            continue
        stem = path.name.split(".")[0]
        if stem in out:
            raise InputError(
                f"{folder} holds both {out[stem].name} and {path.name}; keep one of them."
            )
        out[stem] = source
    return out


def file(path: Path, *, block: int = BLOCK) -> Source | None:
    """The table in a file, or a folder of Parquet files; None if it is none.

    `block` is how many bytes of a CSV are read together; it never changes what is read.
    """
    if path.name.endswith(CSV) and path.is_file():
        return _Csv(path, block).source(frozenset())
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


@dataclass(frozen=True, eq=False)
class _Csv:
    """A CSV file. The type of a column is decided by all of its values, wherever they stand."""

    path: Path
    block: int

    def source(self, exact: frozenset[str]) -> Source:
        """The table, in which the columns `exact` are whole numbers or text as written."""
        size = self.path.stat().st_size * (5 if self.path.suffix == ".gz" else 1)
        return Source(
            self.path.name,
            whole=lambda: self._read(exact),
            stream=lambda: iter(self._opened(self._types(exact))),
            size=size,
            exact=self.source,
        )

    def _read(self, exact: frozenset[str]) -> pa.Table:
        read, parse, convert = self._options(self._types(exact))
        return pa.csv.read_csv(
            self.path, read_options=read, parse_options=parse, convert_options=convert
        )

    def _opened(self, types: dict[str, pa.DataType] | None = None) -> pa.csv.CSVStreamingReader:
        read, parse, convert = self._options(types)
        return pa.csv.open_csv(
            self.path, read_options=read, parse_options=parse, convert_options=convert
        )

    def _options(self, types: dict[str, pa.DataType] | None) -> tuple[Any, Any, Any]:
        """The delimiter is whatever splits the first line most; quoted values may hold line ends."""
        with (gzip.open if self.path.suffix == ".gz" else open)(self.path, "rb") as lines:
            first = lines.readline(1 << 20)
        delimiter = max(",;\t|", key=lambda mark: first.count(mark.encode()))
        return (
            pa.csv.ReadOptions(block_size=self.block),
            pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pa.csv.ConvertOptions(
                null_values=list(MISSING), strings_can_be_null=True, column_types=types
            ),
        )

    def _types(self, exact: frozenset[str]) -> dict[str, pa.DataType]:
        """The type of every column, those of `exact` being whole numbers or text."""
        types = {name: column.type for name, column in self._columns.items()}
        for place, (name, column) in enumerate(self._columns.items()):
            if name in exact or (not name.strip() and f"{UNNAMED}{place}" in exact):
                types[name] = column.exact
        return types

    @functools.cached_property
    def _columns(self) -> dict[str, _Typed]:
        """What every column may be, after a pass over the whole file as text."""
        with self._opened() as reader:
            names = reader.schema.names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(
                f"{self.path.name} has several columns called {listing(repeated)}; rename them."
            )
        columns = {name: _Typed() for name in names}
        with self._opened(dict.fromkeys(names, pa.string())) as batches:
            for batch in batches:
                for name, column in columns.items():
                    column.look(batch.column(name))
        return columns


class _Typed:
    """What a column of text may be, by all values looked at so far."""

    def __init__(self) -> None:
        self._left = list(TYPES)
        self._is_canonical = self._is_empty = True

    @property
    def type(self) -> pa.DataType:
        """The narrowest type that suits every value."""
        return pa.string() if self._is_empty else self._left[0]

    @property
    def exact(self) -> pa.DataType:
        """Whole numbers where every value is the text of one; otherwise text."""
        return pa.int64() if self._is_canonical and not self._is_empty else pa.string()

    def look(self, column: pa.Array) -> None:
        """Takes account of some more values."""
        column = column.drop_null()
        if not len(column):
            return
        self._is_empty = False
        canonical = canonical_numbers(column)
        self._is_canonical = self._is_canonical and canonical is not None
        # Every type is asked about every value, so that it does not matter where blocks begin.
        if canonical is not None:
            ends = pc.min_max(canonical).as_py()
            wide = max(-ends["min"], ends["max"]) >= 10**18
            suits = [pa.int64(), pa.string()] + ([] if wide else [pa.float64()])
            self._left = [kind for kind in self._left if kind in suits]
        else:
            text = pc.utf8_trim_whitespace(column)
            self._left = [kind for kind in self._left if _casts(text, kind)]


CODE = r"^[-+]?(0\d+|\d{19,}|0[xX].*)$"
"""What a number would lose digits of: 007 is a name, and so is what 64 bits cannot hold."""
DATE = r"^\d{4}-\d{2}-\d{2}([T ].*)?$"


def canonical_numbers(column: pa.Array) -> pa.Array | None:
    """Text as whole numbers of 64 bits, where all of it would be written the same again."""
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    same = pc.all(pc.equal(numbers.cast(column.type), column)).as_py()
    return None if same is False else numbers


def _casts(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether text without white space around it can be read as that type, with nothing lost."""
    if kind == pa.bool_():
        return _all_match(column, r"^(true|false|True|False|TRUE|FALSE)$")
    if kind == pa.timestamp("us") and not _all_match(column, DATE):
        return False
    if kind != pa.string() and pc.any(pc.match_substring_regex(column, CODE)).as_py():
        return False
    try:
        column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _all_match(column: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(column, pattern)).as_py() is not False


# -- databases


def is_database(text: str) -> bool:
    """Whether a text is "duckdb:FILE" or the URL of a database, and not a path."""
    return text.startswith("duckdb:") or ("://" in text and not Path(text).exists())


def database(url: str) -> dict[str, Source]:
    """The tables of a database by name; it is opened for reading only where the driver can."""
    if url.startswith("duckdb:") and "://" not in url:
        return _duckdb(Path(url.removeprefix("duckdb:")))
    try:
        import sqlalchemy
    except ImportError:
        raise InputError("databases need SQLAlchemy; pip install 'impact-gnn[sql]'.") from None
    with _said(url):
        address = sqlalchemy.make_url(url)
    if address.get_backend_name() == "duckdb":
        return _duckdb(Path(address.database or ""))
    options: dict[str, Any] = {}
    if address.get_backend_name() == "sqlite":
        place = _sqlite_uri(address.database or "")
        address = sqlalchemy.make_url("sqlite://")
        options = {"creator": functools.partial(_connect_sqlite, place)}
    with _said(url, secret=str(address.password or "")):
        engine = sqlalchemy.create_engine(address, **options)
        names = (
            sqlalchemy.inspect(engine).get_table_names()
            + sqlalchemy.inspect(engine).get_view_names()
        )

    def whole(name: str) -> pa.Table:
        # As the driver has the values: what SQLAlchemy makes of declared types may not be exact.
        identifier = engine.dialect.identifier_preparer.quote_identifier(name)
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(f"select * from {identifier}")  # noqa: S608 # nosec B608
            columns = list(rows.keys())
            values = list(zip(*rows, strict=True)) or [()] * len(columns)
        for column, entries in zip(columns, values, strict=True):
            if {str, bytes} <= {
                type(entry) for entry in entries
            }:  # which Arrow would take for bytes
                raise InputError(
                    f"column {quoted(column)} of {name} holds text and bytes; give it one type."
                )
        return pa.table([pa.array(list(column)) for column in values], names=columns)

    return {name: Source(name, functools.partial(whole, name)) for name in names}


def _sqlite_uri(database: str) -> str:
    """The address by which SQLite opens an existing file and creates none."""
    name = database
    if database.startswith("file:"):
        parts = urllib.parse.urlsplit(database)
        name = urllib.parse.unquote(parts.path)
    if "\0" in name or not Path(name).is_file():
        raise InputError(f"{name or database} does not exist; give sqlite:///FILE.")
    path = Path(name).resolve()  # where SQLite looks for the log
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size and not path.with_name(f"{path.name}-shm").exists():
        raise InputError(
            f"{path} was not closed by its last writer; open and close it once with sqlite3."
        )
    with path.open("rb") as file:
        head = file.read(20)
    # A file with a write-ahead log that nobody has open is complete, but opening it makes a new log.
    alone = head[18:20] == b"\2\2" and not (log.exists() and log.stat().st_size)
    return f"{path.as_uri()}?mode=ro" + ("&immutable=1" if alone else "")


def _connect_sqlite(address: str) -> Any:
    import sqlite3

    connection = sqlite3.connect(address, uri=True)
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
            "DuckDB files need the package duckdb; pip install 'impact-gnn[sql]'."
        ) from None
    if not path.is_file():
        raise InputError(f"{path} does not exist; give duckdb:FILE.")
    # Views may hold any SQL, so that of a file must not reach other files, nor allow itself to.
    config: dict[str, Any] = {
        "enable_external_access": "false",
        "allow_persistent_secrets": "false",
        "lock_configuration": "true",
        "temp_directory": _spill_directory().name,
    }
    with _said(str(path)):
        connection = duckdb.connect(str(path.absolute()), read_only=True, config=config)
        names = [
            row[0]
            for row in connection.execute(
                "select table_name from information_schema.tables where table_schema = 'main'"
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
def _said(where: str, *, secret: str = "") -> Iterator[None]:
    """Turns an error of a driver into a sentence, in which the password is masked."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # every driver has errors of its own
        reason = one_line(error)
        if secret:
            reason = reason.replace(secret, "***")
        where = quoted(mask_passwords(where, is_address=True))
        raise InputError(
            f"{where} cannot be opened ({reason}); check the address and the driver."
        ) from None
