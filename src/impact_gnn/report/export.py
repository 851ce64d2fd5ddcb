"""Tables as CSV that is safe to open in a spreadsheet, as raw CSV, or as Parquet."""

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
    """Write columns of one length, in the format of the file's ending.

    In a `.csv` (not in a `.raw.csv`) text that a spreadsheet would run as a formula gets an
    apostrophe in front.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path.name} must end in .csv, .raw.csv or .parquet.")
    table = pa.table(dict(columns))
    if path.suffix == ".csv" and not path.name.endswith(".raw.csv"):
        table = pa.table(
            [escape_formulas(column) for column in table.columns], names=table.column_names
        )
    write = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
    with _files.atomic_file(path) as temporary:
        write(table, temporary)


def escape_formulas(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Put an apostrophe in front of text that a spreadsheet would run as a formula."""
    if not pa.types.is_string(column.type):
        return column
    # after any white space, also in the wide forms of East Asian keyboards
    formula = r"^'*(\t|\r|[\pZ\s\pC]*[=+\-@＝＋－＠])"
    number = r"^[+-]?[0-9.,]+$"
    is_formula = pc.and_not(
        pc.match_substring_regex(column, formula), pc.match_substring_regex(column, number)
    )
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)


def frame(columns: Mapping[str, Any] | pa.Table) -> Any:
    """A data frame of pandas, or else of polars, or else an Arrow table."""
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
    """Read a table that `write_table` wrote; a cell in quotes is text, whatever it looks like."""
    with guarded(path):
        if path.suffix == ".parquet":
            return pa.parquet.read_table(path, partitioning=None)
        return _read_csv(path)


def _read_csv(path: Path) -> pa.Table:
    # Arrow forgets which cells were in quotes: "007" would become a number.
    with path.open(encoding="utf-8", newline="") as file:
        names = file.readline().strip().strip('"').split('","')
        first_row = re.findall(r'("(?:[^"]|"")*"|[^,\n]*)[,\n]', file.read(1 << 20))
    text_columns = {
        name: pa.string()
        for name, cell in zip(names, first_row, strict=False)
        if cell.startswith('"')
    }
    table = pa.csv.read_csv(
        path,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=text_columns),
    )
    if path.name.endswith(".raw.csv"):
        return table
    return pa.table([*map(_unescaped, table.columns)], names=names)


def _unescaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as it was before `escape_formulas`."""
    if not pa.types.is_string(column.type):
        return column
    bare = pc.utf8_slice_codeunits(column, 1)
    return pc.if_else(pc.equal(escape_formulas(bare), column), bare, column)
