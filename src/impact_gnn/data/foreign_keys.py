"""Foreign keys: columns that hold the ids of another table, as every database export has them.

A table with keys is a table of events: each key becomes a relation from the entity to the event.
Entities may also have no table of their own: then their values in the table of events are all
that is known of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, combinations
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from impact_gnn.data.sources import FurtherColumn, Source
from impact_gnn.data.values import floats_as_numbers
from impact_gnn.encoding.encoder import ONE_HOT
from impact_gnn.encoding.kinds import guess_kind, is_text, one_array, texts, whole

MATCHING = 0.9  # share of the values of a key that are ids of the other table
ROW = "row number"  # the column of ids of a table that has none
ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("citing", "cited"),
    ("follower", "followed"),
    ("sender", "receiver"),
    ("rater", "rated"),
    ("head", "tail"),
    ("u", "v"),
)
KEY_ENDINGS = ("id", "key")
ENTITY_WORDS = (
    *("account", "author", "buyer", "customer", "device", "driver", "item", "merchant", "movie"),
    *("patient", "player", "product", "rated", "rater", "receiver", "seller", "sender", "store"),
    *("team", "user"),
)
TIME_WORDS = ("time", "date", "day", "month", "year")
LEAST_ROWS = 3  # rows per value, on average, of text that names entities
LEAST_VALUES = 5  # values of each column of a pair
SHARED_VALUES = 0.3  # share of the values of one column that the other has, where both are a pair


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
    words: tuple[str, ...] = ()

    @cached_property
    def ids(self) -> pa.Array:
        """The ids as text."""
        table = self.source.as_written([self.id]).table
        return pc.unique(texts(self.id, table.column(self.id)))

    def match(self, column: str) -> int:
        """Return how many letters of a column's name refer to this table or its ids; 0 for none.

        A role may stand in front: home_team_id refers to teams.
        """
        name = plain_name(column)
        if name == plain_name(self.id) or name in self.words:
            return len(name)
        endings = [f"{word}{ending}" for word in self.words for ending in KEY_ENDINGS]
        return max(map(len, filter(name.endswith, endings)), default=0)

    def roles_in(self, names: Sequence[str]) -> list[str]:
        """Return two or more columns that name this table in several roles.

        Such as home_team and away_team; one alone may be something else, as sort_order is.
        """
        roles = [name for name in names if _words(name)[1:] and _words(name)[-1] in self.words]
        return roles if len(roles) > 1 else []

    def has_ids_in(self, source: Source, column: str, share: float = MATCHING) -> bool:
        """Whether at least a share of the first values of a column are ids of this table.

        A few may be missing here, as in exports of a part of a database.
        """
        values = source.as_written([column]).head.column(column)
        if not may_be_id(values) or self.id not in self.source.names:
            return False
        # As text, because one table may store ids as numbers and the other as text.
        present = pc.is_in(_key_texts(column, values.drop_null()), self.ids)
        return bool(len(present)) and pc.mean(present).as_py() >= share


Entities: TypeAlias = Mapping[str, Entity]
"""Entities by node type."""


def plain_name(name: str) -> str:
    """Return a name in lower case without separators: race_id and raceId are one name."""
    return re.sub(r"[_\s-]", "", str(name)).lower()


def find_keys(entities: Entities, no_keys: Collection[str] = ()) -> list[ForeignKey]:
    """Find the columns that are named after a table and hold ids of it, but for `no_keys`."""
    keys = []
    for table, entity in entities.items():
        names = entity.source.names
        roles = {parent: other.roles_in(names) for parent, other in entities.items()}
        for column in names:
            # A table's own ids are no key.
            if column == entity.id or column in no_keys:
                continue
            # Letters that match, by parent; a role alone counts as one.
            lengths = {
                parent: other.match(column) or int(column in roles[parent])
                for parent, other in entities.items()
            }
            # The longest match first: order_item_id refers to order_items rather than to items.
            for parent in sorted(lengths, key=lengths.__getitem__, reverse=True):
                if not lengths[parent]:
                    break
                # A column named like its own table (lap of laps) counts something.
                if parent == table and plain_name(column) in entity.words:
                    continue
                if entities[parent].has_ids_in(entity.source, column):
                    keys.append(ForeignKey(table, column, parent))
                    break
    return keys


def kind_of(table: pa.Table, name: str) -> str:
    """Return the most likely kind of a column."""
    return guess_kind(name, table.column(name))[0]


def _key_texts(name: str, column: pa.ChunkedArray) -> pa.Array:
    """Return ids as text, also 7.0 as "7": gaps make floats of whole numbers."""
    return texts(name, floats_as_numbers(column))


def with_parent_column(source: Source, key: str, parent: Entity, column: str) -> Source:
    """Return a table with a further column KEY.COLUMN: that of the parent row of every row."""

    @cache
    def parents() -> tuple[pa.Array, pa.ChunkedArray]:
        table = parent.source.as_written([parent.id]).table
        ids = texts(parent.id, table.column(parent.id))
        return one_array(ids), table.column(column)

    def values(table: pa.Table, first_row: int) -> pa.ChunkedArray:
        ids, parent_values = parents()
        # The row of the parent; an unknown key has none, and gets null.
        rows = pc.index_in(_key_texts(key, table.column(key)), value_set=ids)
        return parent_values.take(rows)

    return source.with_column(FurtherColumn(f"{key}.{column}", values, (key,)))


def with_row_numbers(source: Source, first: int = 0) -> Source:
    """Return a table with a further column `ROW`, by which rows without ids are named."""

    def numbers(table: pa.Table, first_row: int) -> pa.ChunkedArray:
        return pa.chunked_array([first + first_row + np.arange(table.num_rows)])

    if ROW in source.names:
        return source
    return source.with_column(FurtherColumn(ROW, numbers))


# -- entities without a table of their own


def distinct_values(source: Source, columns: Sequence[str]) -> Source:
    """Return a table of the distinct values of some columns in a column "id"."""

    def read() -> pa.Table:
        table = source.as_written(columns).table
        values = [pc.unique(table.column(name)).drop_null() for name in columns]
        # Gaps make floats of the whole numbers of one column.
        numbers = [whole(floats_as_numbers(array)) for array in values]
        if None not in numbers:
            values = numbers
        # Columns of different types are joined as text.
        elif len({array.type for array in values}) > 1:
            values = list(map(texts, columns, values))
        return pa.table({"id": pc.unique(pa.chunked_array(values))})

    return Source(f"{source.name}, values of {', '.join(columns)}", read)


def find_entities(
    table: pa.Table,
    columns: Sequence[str],
    *,
    by_values: bool,
) -> dict[str, list[str]]:
    """Find columns that name entities without a table: columns by the name of their entity.

    A column names entities by its own name (userId, customer) or by that of a pair (source and
    target). With `by_values`, so does text of many values that each occur several times, and two
    columns of text that share a word and values (home_team and away_team). Columns of a pair are
    two roles of one entity. Numbers that measure something (score, age) name nothing.
    """
    usable = [name for name in columns if _may_be_key(table.column(name))]
    # Columns by their name without "id" or "key".
    stems = {_stem(name): name for name in usable}
    # Pairs by name, such as source and target.
    ends = [[stems[end] for end in pair] for pair in ENDS if {*pair} <= stems.keys()]
    endings = {*KEY_ENDINGS, *ENTITY_WORDS}
    # Columns whose last word says that they name something.
    named = [name for name in usable if endings & {*_words(name)[-1:]} or name in chain(*ends)]
    text_columns = [name for name in usable if by_values and is_text(table.column(name).type)]
    pairs = chain(combinations(named, 2), combinations(text_columns, 2))
    # Pairs that share a word, such as home_team and away_team.
    alike = [pair for pair in pairs if _common_word(*pair) is not None]
    roles = [pair for pair in (*ends, *alike) if _share_values(table, *pair)]
    many = [name for name in text_columns if _has_many_values(table, name)]
    entities: dict[str, list[str]] = {}
    for name in usable:
        # The first pair that the column is in.
        pair = next((pair for pair in roles if name in pair), None)
        if pair is not None:
            entities.setdefault(_common_word(*pair) or "entity", []).append(name)
        elif name in (*named, *many):
            kind = _stem(name) or "entity"
            if kind in entities:  # customer and customer_id may be two things
                kind = name
            entities[kind] = [name]
    return entities


def _may_be_key(column: pa.ChunkedArray) -> bool:
    """Whether a column holds whole numbers or text of which some occur twice."""
    # Some value is repeated, and not all are the same.
    num_values = len(column) - column.null_count
    return may_be_id(column) and 1 < pc.count_distinct(column).as_py() < num_values


def may_be_id(column: pa.ChunkedArray) -> bool:
    """Whether a column holds text, decimals or whole numbers, also if gaps made floats of them."""
    is_exact = is_text(column.type) or pa.types.is_decimal(column.type)
    return is_exact or whole(column) is not None


def _has_many_values(table: pa.Table, name: str) -> bool:
    """Whether a column is a category of too many values to be a feature each."""
    distinct = pc.count_distinct(table.column(name)).as_py()
    is_repeated = ONE_HOT < distinct <= len(table) / LEAST_ROWS
    return is_repeated and kind_of(table, name) == "category"


def _share_values(table: pa.Table, first: str, second: str) -> bool:
    """Whether two columns hold the same values, and not only yes and no."""
    columns = [texts(name, table.column(name)) for name in (first, second)]
    values = [pc.unique(column).drop_null() for column in columns]
    # Measured by the larger column, so that a few common words make no pair.
    fewer, more = sorted(values, key=len)
    num_shared = pc.sum(pc.is_in(fewer, more)).as_py()
    return len(fewer) >= LEAST_VALUES and bool(num_shared >= SHARED_VALUES * len(more))


def _common_word(first: str, second: str) -> str | None:
    """Return the last word that two names share, unless it is a word of time."""
    shared = {*_words(second)} - {*KEY_ENDINGS, *TIME_WORDS}
    return next((word for word in reversed(_words(first)) if word in shared), None)


def _stem(column: str) -> str:
    return "_".join(word for word in _words(column) if word not in KEY_ENDINGS)


def _words(name: str) -> list[str]:
    """Return the words of a name in lower case: of home_team, homeTeam and "Home team" two."""
    return re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
