"""Foreign keys: columns that hold the ids of another table, as every database export has them.

A table with keys is a table of events: each key becomes a relation from the entity to the event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn.data.sources import Source
from impact_gnn.encoding.kinds import one_array, texts

SAMPLE = 1000  # values of a column that are looked up among the ids of another table


@dataclass(frozen=True)
class ForeignKey:
    """A column of one table that holds ids of another."""

    table: str
    column: str
    parent: str


@dataclass(frozen=True)
class Entity:
    """A table with its column of ids, and the words by which other tables refer to it."""

    source: Source
    id: str
    words: tuple[str, ...]

    def ids(self) -> pa.Array:
        """Return the ids as text."""
        table = self.source.as_written([self.id]).table
        return pc.unique(texts(self.id, table.column(self.id)))

    def is_meant_by(self, column: str) -> bool:
        """Whether a column is named after the table or its ids, perhaps with a role in front."""
        name = plain_name(column)
        if name == plain_name(self.id) or name in self.words:
            return True
        return any(name.endswith(f"{word}id") for word in self.words)


def plain_name(name: str) -> str:
    """Return a name in lower case without underscores: race_id and raceId are one name."""
    return name.replace("_", "").lower()


def find_keys(entities: Mapping[str, Entity]) -> list[ForeignKey]:
    """Find the columns that are named after another table and hold only ids of it."""
    keys = []
    for table, entity in entities.items():
        for column in entity.source.head.column_names:
            if column == entity.id:
                continue
            for parent, other in entities.items():
                if parent != table and other.is_meant_by(column) and _holds(entity, column, other):
                    keys.append(ForeignKey(table, column, parent))
                    break
    return keys


def _holds(entity: Entity, column: str, other: Entity) -> bool:
    """Whether the first values of a column are ids of another table."""
    head = entity.source.as_written([column]).head
    values = texts(column, head.column(column).slice(0, SAMPLE).drop_null())
    return len(values) > 0 and bool(pc.all(pc.is_in(values, other.ids())).as_py())


def with_parent_column(source: Source, key: str, parent: Entity, column: str) -> Source:
    """Return a table with a further column KEY.COLUMN: that of the parent row of every row."""
    name = f"{key}.{column}"

    def extended(table: pa.Table) -> pa.Table:
        parents = parent.source.as_written([parent.id]).table
        ids = one_array(texts(parent.id, parents.column(parent.id)))
        place = pc.index_in(texts(key, table.column(key)), value_set=ids)
        return table.append_column(name, parents.column(column).take(place))

    def as_written(columns: frozenset[str]) -> Source:
        exact = source.as_written([*columns, key])
        return with_parent_column(replace(exact, exact=None), key, parent, column)

    def batches() -> list[pa.RecordBatch]:
        return extended(source.as_written([key]).table).to_batches()

    return Source(
        name=source.name,
        read=lambda: extended(source.as_written([key]).table),
        stream=None if source.stream is None else batches,
        size=source.size,
        exact=None if source.exact is None else as_written,
        notes=source.notes,
    )
