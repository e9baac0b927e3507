"""A table of items in Postgres: the names and types of its columns, and whether it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

from fairsync.catalog.attributes import ListColumn
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search.engines.item_schema import ItemSchema, empty_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.postgres_connection import PostgresConnection

_TYPES = {"str": "text", "int": "bigint", "bool": "boolean", "float": "double precision", "": "text"}
# Types of existing columns whose values can be read as one of these types without loss.
_FITTING = {
    "text": {"text", "character varying"},
    "bigint": {"bigint", "integer", "smallint"},
    "boolean": {"boolean"},
    "double precision": {"double precision", "real", "integer", "smallint"},
}
_COLUMNS = """
    SELECT attname, format_type(atttypid, NULL), CASE WHEN atttypmod > 0 THEN atttypmod END
    FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""
_INDEXES = """
    SELECT access.amname, kind.opcname, a.attname, i.indisunique AND i.indnkeyatts = 1
    FROM pg_index AS i
    JOIN pg_class AS named ON named.oid = i.indexrelid
    JOIN pg_am AS access ON access.oid = named.relam
    JOIN pg_opclass AS kind ON kind.oid = i.indclass[0]
    JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = %s::regclass AND i.indisvalid AND i.indpred IS NULL
"""


class PgvectorTable:
    """The table that holds items, and how its columns are named.

    Parameters
    ----------
    name
        The name of the table, with its schema if that is not on the search path.
    id_column, embedding_column
        The names of these columns.
    columns
        The column of each attribute whose name is another one.

    Attributes
    ----------
    types : dict
        The SQL type of each attribute, without the ``[]`` of lists.
    lists : set
        The attributes whose values are arrays.
    id_type : str
        The SQL type of ids.
    number : int
        What identifies the table since `prepare`, whatever its name is; 0 for a view or a partitioned table.
    """

    def __init__(self, name: str, id_column: str, embedding_column: str, columns: Mapping[str, str] | None) -> None:
        if not all(name.split(".")) or name.count(".") > 1:
            raise InvalidInputError(f"table must be a name such as 'items' or 'shop.items', got {name!r}.")
        self.name, self.id_column, self.embedding_column = name, id_column, embedding_column
        self._columns, self.number = dict(columns or {}), 0
        self.identifier = sql.Identifier(*name.split("."))
        self.id, self.embedding = (sql.Identifier("item", one) for one in (id_column, embedding_column))
        self.has_embedding = sql.SQL("{} IS NOT NULL").format(self.embedding)
        self.types: dict[str, str] = {}
        self.lists: set[str] = set()
        self.id_type = "text"

    def named(self, name: str) -> PgvectorTable:
        """Return a table of the same columns with another name."""
        return PgvectorTable(name, self.id_column, self.embedding_column, self._columns)

    @property
    def typed_id(self) -> sql.Composed:
        """The id of an item as SQL."""
        return sql.SQL("{}::{}").format(self.id, sql.SQL(self.id_type))

    @property
    def stored(self) -> sql.Composed:
        """All that is read of an item as SQL: id, vector, attributes."""
        vector = sql.SQL("vector_send({})").format(self.embedding)
        return sql.SQL(", ").join([self.typed_id, vector, *map(self.value, self.types)])

    def column_of(self, attribute: str) -> str:
        """Return the name of an attribute's column."""
        return self._columns.get(attribute, attribute)

    def column(self, attribute: str) -> sql.Identifier:
        """Return an attribute's column as SQL."""
        return sql.Identifier("item", self.column_of(attribute))

    def value(self, attribute: str) -> sql.Composed:
        """Return the value of an attribute as SQL, in the type that labels and numbers have here."""
        kind = self.types[attribute] + ("[]" if attribute in self.lists else "")
        return sql.SQL("{}::{}").format(self.column(attribute), sql.SQL(kind))

    def schema(self, connection: PostgresConnection, attributes: Sequence[str]) -> ItemSchema:
        """Return the types of ids, embeddings and these attributes, as the table has them."""
        self._check_extension(connection)
        if not self.exists(connection):
            raise InvalidInputError(
                f"there is no table {self.name!r} in this database: check its name and schema, or have it made with"
                " upload=True."
            )
        found = {row[0]: row[1:] for row in connection.execute(_COLUMNS, [self._quoted(connection)]).fetchall()}
        kinds = {"str": "text", "int": "bigint"}
        fitting = {one: kind for kind, name in kinds.items() for one in _FITTING[name]}
        self._expect(found, self.id_column, "ids", set(fitting), "text or bigint")
        self._expect(found, self.embedding_column, "embeddings", {"vector"}, "vector(d)")
        # A number that is stored with decimals is a number, and any other a label.
        known = {one: kind for kind in ("float", "bool", "int", "str") for one in _FITTING[_TYPES[kind]]}
        columns = {}
        for name in attributes:
            column = self.column_of(name)
            wanted = {one + array for one in known for array in ("", "[]")} - {"double precision[]", "real[]"}
            self._expect(found, column, f"the attribute {name!r}", wanted, "text, bigint, boolean, or an array of them")
            kind = found[column][0]
            columns[name] = empty_column(known[kind.removesuffix("[]")], is_list=kind.endswith("[]"))
        dim = found[self.embedding_column][1] or 0
        return ItemSchema(dim, str if fitting[found[self.id_column][0]] == "str" else int, columns)

    def no_dimensions(self) -> InvalidInputError:
        """Return the error for embeddings whose number of dimensions is not declared."""
        return InvalidInputError(
            f"the column {self.embedding_column!r} of {self.name!r} has no number of dimensions: run ALTER TABLE"
            f" {self.name} ALTER COLUMN {self.embedding_column} TYPE vector(d)."
        )

    def prepare(self, connection: PostgresConnection, schema: ItemSchema, *, create: bool, writes: bool) -> None:
        """Take the types of ids and attributes, make the table if that is asked for, and check that it fits."""
        schema.check_names(self._columns)
        self.id_type = "text" if schema.ids is str else "bigint"
        self.types = {name: _TYPES[column.kind] for name, column in schema.columns.items()}
        self.lists = {name for name, column in schema.columns.items() if isinstance(column, ListColumn)}
        if create and not self.exists(connection):
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            self._create(connection, schema.dim)
        schema.check_fits(self.schema(connection, list(schema.columns)), f"the table {self.name!r}")
        if writes and not any(
            column == self.id_column and unique for _, _, column, unique in self._indexes(connection)
        ):
            raise InvalidInputError(
                f"the column {self.id_column!r} of {self.name!r} has no unique index, so that items cannot be replaced:"
                " add PRIMARY KEY or UNIQUE."
            )
        self._check_rights(connection, ("SELECT", "INSERT", "UPDATE", "DELETE") if writes else ("SELECT",))
        self.number = self._number(connection)

    def exists(self, connection: PostgresConnection) -> bool:
        """Return whether there is such a table."""
        found = connection.execute("SELECT to_regclass(%s)", [self._quoted(connection)]).fetchone()
        return found is not None and found[0] is not None

    def _check_extension(self, connection: PostgresConnection) -> None:
        found = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
        if found is None:
            raise InvalidInputError("this database has no pgvector: have its owner run CREATE EXTENSION vector.")
        if tuple(map(int, found[0].split(".")[:2])) < (0, 8):
            raise InvalidInputError(f"pgvector is {found[0]}, and 0.8 is needed: have its owner update the extension.")

    def _create(self, connection: PostgresConnection, dim: int) -> None:
        definitions = [
            sql.SQL("{} {} PRIMARY KEY").format(sql.Identifier(self.id_column), sql.SQL(self.id_type)),
            sql.SQL("{} vector({}) NOT NULL").format(sql.Identifier(self.embedding_column), sql.Literal(dim)),
        ]
        for name, kind in self.types.items():
            shape = sql.SQL(kind + ("[]" if name in self.lists else ""))
            definitions.append(sql.SQL("{} {} NOT NULL").format(sql.Identifier(self.column_of(name)), shape))
        table, parts = self.identifier, sql.SQL(", ").join(definitions)
        connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, parts))

    def _expect(
        self, found: Mapping[str, Sequence[Any]], column: str, what: str, fitting: set[str], wanted: str
    ) -> None:
        if column not in found:
            raise InvalidInputError(
                f"the table {self.name!r} has no column {column!r} for {what}; it has {', '.join(sorted(found))}: name"
                " the column, or leave the attribute out of the catalog."
            )
        if found[column][0] not in fitting:
            raise InvalidInputError(
                f"the column {column!r} of {self.name!r} is {found[column][0]}, and {what} need {wanted}: name another"
                " column, or convert it."
            )

    def can_be_replaced(self, connection: PostgresConnection) -> bool:
        """Return whether a table of these columns can take the place of this one: it has no others."""
        found = {row[0] for row in connection.execute(_COLUMNS, [self._quoted(connection)]).fetchall()}
        return found == {self.id_column, self.embedding_column, *map(self.column_of, self.types)}

    def _number(self, connection: PostgresConnection) -> int:
        row = connection.execute(
            "SELECT oid::bigint FROM pg_class WHERE oid = %s::regclass AND relkind = 'r'", [self._quoted(connection)]
        ).fetchone()
        return 0 if row is None else int(row[0])

    def follow(self, connection: PostgresConnection) -> None:
        """Take the present name of the table: it may have been given to another one."""
        found = connection.execute(
            "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE c.oid = %s", [self.number],
        ).fetchone()  # fmt: skip
        if found is None:
            raise BackendUnavailableError(
                f"the table {self.name!r} was replaced, and the old one is gone: open it again."
            )
        self.identifier = sql.Identifier(*found)

    def switch(self, connection: PostgresConnection, name: str) -> None:
        """Give this table a name; the table that has it keeps it with ``_old``."""
        parts = name.split(".")
        old = [*parts[:-1], f"{parts[-1]}_old"]
        with connection.transaction():
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(*old)))
            rename = sql.SQL("ALTER TABLE {} RENAME TO {}")
            connection.execute(rename.format(sql.Identifier(*parts), sql.Identifier(old[-1])))
            connection.execute(rename.format(self.identifier, sql.Identifier(parts[-1])))
        self.name, self.identifier = name, sql.Identifier(*parts)

    def index_by_hnsw(self, connection: PostgresConnection, *, create: bool) -> None:
        """Make an HNSW index if there is none and that is asked for, and check that it is of the inner product."""
        found = self._indexes(connection)
        kinds = [kind for access, kind, column, _ in found if access == "hnsw" and column == self.embedding_column]
        if not kinds and create:
            statement = sql.SQL("CREATE INDEX ON {} USING hnsw ({} vector_ip_ops)")
            connection.execute(statement.format(self.identifier, sql.Identifier(self.embedding_column)))
        elif "vector_ip_ops" not in kinds:
            has = f" (it has one of {kinds[0]}, another metric)" if kinds else ""
            raise InvalidInputError(
                f"the column {self.embedding_column!r} of {self.name!r} has no HNSW index of the inner product{has}:"
                f" run CREATE INDEX ON {self.name} USING hnsw ({self.embedding_column} vector_ip_ops), or use"
                " index='exact'."
            )

    def _indexes(self, connection: PostgresConnection) -> list[tuple[Any, ...]]:
        """Return the indexes: access method, operator class, first column, and whether that column is unique."""
        return connection.execute(_INDEXES, [self._quoted(connection)]).fetchall()

    def _check_rights(self, connection: PostgresConnection, rights: Sequence[str]) -> None:
        for right in rights:
            row = connection.execute("SELECT has_table_privilege(%s, %s)", [self._quoted(connection), right]).fetchone()
            if row is None or not row[0]:
                raise InvalidInputError(
                    f"the user may not {right} in {self.name!r}: GRANT {right} ON {self.name} to it."
                )

    def _quoted(self, connection: PostgresConnection) -> str:
        return self.identifier.as_string(connection)
