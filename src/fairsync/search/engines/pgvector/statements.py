"""The SQL of searches, counts and changes, with all values as parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.catalog.conditions import Condition
    from fairsync.search.engines.engine import Bonus, EngineQuery, Floats, Restricted
    from fairsync.search.engines.pgvector.table import PgvectorTable


def select(table: PgvectorTable, query: EngineQuery, at: int, *, by_index: bool) -> tuple[sql.Composed, dict[str, Any]]:
    """Return the statement for one vector of a query, and its values.

    Its rows have the number of the table, the score, the id, and if items are asked for, the rest of them.

    Parameters
    ----------
    table
        The table.
    query
        The query.
    at
        The place of the vector.
    by_index
        Whether to order by distance alone, which an index can serve. Any other order makes the search exact.
    """
    values: dict[str, Any] = {"vector": to_text(query.vectors[at]), "count": query.count}
    distance = sql.SQL("{} <#> %(vector)s::vector").format(table.embedding)
    score, join = sql.SQL("-({})").format(distance), sql.Composed([])
    if query.bonus is not None:
        score, join = sql.SQL("{} + bonus.value").format(score), _join(table, query.bonus, values)
    clauses = [table.has_embedding]
    if query.restricted is not None:
        clauses += _where(table, query.restricted[at], values)
    statement = sql.SQL("SELECT {}, {}, {} FROM {} AS item {} WHERE {} ORDER BY {} LIMIT %(count)s").format(
        sql.SQL("item.tableoid::bigint" if table.number else "0::bigint"), score,
        table.stored if query.with_items else table.typed_id, table.identifier, join,
        sql.SQL(" AND ").join(clauses), distance if by_index else sql.SQL("{} DESC").format(score),
    )  # fmt: skip
    return statement, values


def count_statement(
    table: PgvectorTable, attributes: Sequence[str], conditions: Sequence[Condition]
) -> tuple[sql.Composed, dict[str, Any]]:
    """Return the statement that counts items by the values of some attributes, and its values."""
    values: dict[str, Any] = {}
    clauses = [table.has_embedding, *write_conditions(conditions, SqlConditions(table, values))]
    columns = [*map(table.value, attributes)]
    grouped = sql.SQL(" GROUP BY {}").format(sql.SQL(", ").join(columns)) if columns else sql.SQL("")
    statement = sql.SQL("SELECT {} FROM {} AS item WHERE {}{}").format(
        sql.SQL(", ").join([sql.SQL("count(*)"), *columns]), table.identifier, sql.SQL(" AND ").join(clauses), grouped
    )
    return statement, values


def write_statements(table: PgvectorTable) -> tuple[sql.Composed, sql.Composed, sql.Composed]:
    """Return statements that make a table for new items, insert or replace items from there, and remove items."""
    names = [table.id_column, table.embedding_column, *map(table.column_of, table.types)]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names[1:])
    stage = sql.SQL("CREATE TEMP TABLE fairsync_staged ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
        columns, table.identifier
    )
    insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM fairsync_staged ON CONFLICT ({}) DO UPDATE SET {}").format(
        table.identifier, columns, columns, sql.Identifier(table.id_column), updates
    )
    remove = sql.SQL("DELETE FROM {} AS item WHERE {} = ANY(%s::{}[])").format(
        table.identifier, table.id, sql.SQL(table.id_type)
    )
    return stage, insert, remove


def _join(table: PgvectorTable, bonus: Bonus, values: dict[str, Any]) -> sql.Composed:
    """Return a join with the bonus of each label. Items of labels that are left out have no partner in it."""
    kept = {label: value for label, value in bonus.by_label.items() if value > -math.inf}
    several, names = len(bonus.attributes) > 1, [f"label{at}" for at in range(len(bonus.attributes))]
    for at, name in enumerate(names):
        values[name] = [label[at] if several else label for label in kept]
    values["bonuses"] = list(kept.values())
    pairs = list(zip(bonus.attributes, names, strict=True))
    arrays = [sql.SQL("%({})s::{}[]").format(sql.SQL(name), sql.SQL(table.types[one])) for one, name in pairs]
    matches = [sql.SQL("bonus.{} = {}").format(sql.SQL(name), table.column(one)) for one, name in pairs]
    return sql.SQL("JOIN unnest({}, %(bonuses)s::float8[]) AS bonus ({}, value) ON {}").format(
        sql.SQL(", ").join(arrays), sql.SQL(", ").join(map(sql.SQL, names)), sql.SQL(" AND ").join(matches)
    )


def _where(table: PgvectorTable, restricted: Restricted, values: dict[str, Any]) -> list[sql.Composed]:
    clauses = write_conditions(restricted.conditions, SqlConditions(table, values))
    if restricted.excluded:
        values["excluded"] = list(restricted.excluded)
        clauses.append(sql.SQL("{} <> ALL(%(excluded)s::{}[])").format(table.id, sql.SQL(table.id_type)))
    return clauses


class SqlConditions:
    """Writes conditions as SQL, with their values as parameters.

    Parameters
    ----------
    table
        The columns.
    values
        Where the parameters are added, by name.
    """

    def __init__(self, table: PgvectorTable, values: dict[str, Any]) -> None:
        self._table, self._values = table, values

    def one_of(self, attribute: str, values: Sequence[AttributeLabel | float]) -> sql.Composed:
        """Return a clause for items with one of these values."""
        kind = sql.SQL(self._table.types[attribute])
        wanted = sql.SQL("{}::{}[]").format(self._add(list(values)), kind)
        if attribute in self._table.lists:
            return sql.SQL("{} && {}").format(self._table.value(attribute), wanted)
        return sql.SQL("{} = ANY({})").format(self._table.column(attribute), wanted)

    def within(self, attribute: str, low: float | None, high: float | None) -> sql.Composed:
        """Return a clause for items with a number in this range."""
        column, clauses = self._table.column(attribute), []
        if low is not None:
            clauses.append(sql.SQL("{} >= {}::float8").format(column, self._add(low)))
        if high is not None:
            clauses.append(sql.SQL("{} <= {}::float8").format(column, self._add(high)))
        return sql.SQL(" AND ").join(clauses or [sql.SQL("{} IS NOT NULL").format(column)])

    def negate(self, clause: sql.Composed) -> sql.Composed:
        """Return a clause for all other items, also those without a value."""
        return sql.SQL("({}) IS NOT TRUE").format(clause)

    def _add(self, value: Any) -> sql.Placeholder:
        name = f"value{len(self._values)}"
        self._values[name] = value
        return sql.Placeholder(name)


def to_text(vector: Floats) -> str:
    """Return a vector as pgvector reads it.

    Examples
    --------
    >>> to_text(np.array([0.5, -2.0], dtype=np.float32))
    '[0.5,-2.0]'
    """
    return f"[{','.join(map(repr, vector.tolist()))}]"


def to_vectors(sent: Sequence[bytes]) -> Floats:
    """Return vectors as pgvector sends them: two numbers of 16 bits, then the values, most significant byte first."""
    if not sent:
        return np.empty((0, 0), dtype=np.float32)
    raw = np.frombuffer(b"".join(sent), dtype=np.uint8).reshape(len(sent), -1)
    return np.ascontiguousarray(raw[:, 4:]).view(">f4").astype(np.float32)
