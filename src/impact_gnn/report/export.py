"""Tables for people: CSV that a spreadsheet may open, CSV as it is, Parquet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from impact_gnn import _files
from impact_gnn.checks import InputError, guarded


def write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Writes columns of one length, by the ending of the file's name.

    In a `.csv` (not in a `.raw.csv`) text that a spreadsheet would run as a formula stands behind
    an apostrophe.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path.name} should end in .csv, .raw.csv or .parquet.")
    table = pa.table(dict(columns))
    if path.suffix == ".csv" and not path.name.endswith(".raw.csv"):
        table = pa.table([harmless(column) for column in table.columns], names=table.column_names)
    write = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
    with _files.atomic_file(path) as temporary:
        write(table, temporary)


def harmless(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Text behind an apostrophe where a spreadsheet would run it."""
    if not pa.types.is_string(column.type):
        return column
    # after any white space, also in the wide forms of East Asian keyboards
    begins, number = r"^'*(\t|\r|[\pZ\s\pC]*[=+\-@＝＋－＠])", r"^[+-]?[0-9.,]+$"
    runs = pc.and_not(
        pc.match_substring_regex(column, begins), pc.match_substring_regex(column, number)
    )
    return pc.if_else(runs, pc.binary_join_element_wise("'", column, ""), column)


def frame(columns: Mapping[str, Any] | pa.Table) -> Any:
    """A data frame of pandas, of polars where that alone is installed, an Arrow table where neither is."""
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    if find_spec("pandas"):
        return table.to_pandas()
    if find_spec("polars"):
        import polars

        return polars.from_arrow(table)
    return table


def read_frame(path: Path) -> Any:
    """A table that `write_table` wrote, as a data frame."""
    return frame(read_table(path))


def read_table(path: Path) -> pa.Table:
    """The columns that `write_table` was given: what stands in quotes is text, whatever it looks like."""
    with guarded(path):
        return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def _read_parquet(path: Path) -> pa.Table:
    return pa.parquet.read_table(path, partitioning=None)


def _read_csv(path: Path) -> pa.Table:
    with path.open(encoding="utf-8", newline="") as file:
        names = file.readline().strip().strip('"').split('","')
        first = re.findall(r'("(?:[^"]|"")*"|[^,\n]*)[,\n]', file.read(1 << 20))
    text = {
        name: pa.string() for name, cell in zip(names, first, strict=False) if cell.startswith('"')
    }
    parse, convert = (
        pa.csv.ParseOptions(newlines_in_values=True),
        pa.csv.ConvertOptions(column_types=text),
    )
    table = pa.csv.read_csv(path, parse_options=parse, convert_options=convert)
    return (
        table
        if path.name.endswith(".raw.csv")
        else pa.table([*map(_bare, table.columns)], names=names)
    )


def _bare(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as it was before `harmless`."""
    if not pa.types.is_string(column.type):
        return column
    bare = pc.utf8_slice_codeunits(column, 1)
    return pc.if_else(pc.equal(harmless(bare), column), bare, column)
