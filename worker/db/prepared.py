"""Prepared statements: what the queue runs for every job, compiled once and run by the driver.

A statement is written with SQLAlchemy's Core like any other, and runs inside a transaction of
`Database`, between others on the same connection. Left out is only what SQLAlchemy does at each
execution, which takes many times as long as SQLite needs. For statements whose text never changes:
no list in an `IN`, no condition that is sometimes absent. Knows no table.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, Delete, Dialect, Float, Insert, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler

from worker.db import dialects

Statement = Select[*tuple[Any, ...]] | Insert | Update | Delete
_Bound = Sequence[Any] | dict[str, Any]


class _Compiled(NamedTuple):
    """The statement as one driver takes it."""

    sql: str
    given: int
    """How many values the caller gives."""
    bind: Callable[[Mapping[str, Any]], _Bound]
    """From the caller's values to the driver's."""


class Prepared:
    """One statement. Its rows are named tuples of its columns."""

    def __init__(self, statement: Statement) -> None:
        """An INSERT fills what it says itself, and the columns that its first call names."""
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}
        self._readers: dict[str, Callable[[Sequence[Any]], Any]] = {}

    def all(self, conn: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Its rows. Raises what `conn.execute` raises, KeyError for a value that is missing."""
        cursor = self._execute(conn, values)
        read = self._readers.get(conn.dialect.name) or self._reader(conn, cursor)
        return [read(row) for row in cursor.fetchall()]

    def columns(self, conn: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Its rows as columns, in the driver's own types (so for numbers); none without a row."""
        return list(zip(*self._execute(conn, values).fetchall(), strict=True))

    def one_or_none(self, conn: Connection, values: Mapping[str, Any]) -> Any:
        """Its only row, or None."""
        cursor = self._execute(conn, values)
        rows = cursor.fetchall()
        if not rows:
            return None
        assert len(rows) == 1, f"{len(rows)} rows where there is one at most"
        read = self._readers.get(conn.dialect.name) or self._reader(conn, cursor)
        return read(rows[0])

    def one(self, conn: Connection, values: Mapping[str, Any]) -> Any:
        """Its only row."""
        row = self.one_or_none(conn, values)
        assert row is not None, "no row where there is always one"
        return row

    def new_id(self, conn: Connection, values: Mapping[str, Any]) -> int:
        """The id of the row that it makes; for an INSERT."""
        return dialects.new_id(conn, self._execute(conn, values))

    def run(self, conn: Connection, values: Mapping[str, Any]) -> int:
        """How many rows it changed; for a statement that returns none."""
        return int(self._execute(conn, values).rowcount)

    def _reader(self, conn: Connection, cursor: Any) -> Callable[[Sequence[Any]], Any]:
        read = _reader(self._statement, conn.dialect, cursor.description)
        self._readers[conn.dialect.name] = read
        return read

    def _execute(self, conn: Connection, values: Mapping[str, Any]) -> Any:
        """Returns the driver's cursor."""
        compiled = self._compiled.get(conn.dialect.name)
        if compiled is None:
            compiled = _compile(self._statement, conn.dialect, list(values))
            self._compiled[conn.dialect.name] = compiled
        assert len(values) == compiled.given, f"{sorted(values)} for: {compiled.sql}"
        return dialects.execute(conn, compiled.sql, compiled.bind(values))


def _compile(statement: Statement, dialect: Dialect, given: Sequence[str]) -> _Compiled:
    keys = given if isinstance(statement, Insert) else None
    compiled = statement.compile(dialect=dialect, column_keys=keys)
    assert isinstance(compiled, SQLCompiler)
    assert not compiled.post_compile_params, "its text depends on its values"
    return _Compiled(compiled.string, len(given), _binder(compiled))


def _binder(compiled: SQLCompiler) -> Callable[[Mapping[str, Any]], _Bound]:
    names = list(compiled.positiontup or compiled.binds)
    bound = {name: compiled.binds[name] for name in names}
    fixed = {name: _fixed(compiled, one) for name, one in bound.items() if not one.required}
    converters = [
        (name, convert)
        for name, one in bound.items()
        if one.required and (convert := _processor(compiled, one)) is not None
    ]

    def by_name(values: Mapping[str, Any]) -> dict[str, Any]:
        given = {**values, **fixed}
        for name, convert in converters:
            given[name] = convert(given[name])
        return given

    if not compiled.positional:
        return by_name
    in_order = _in_order(names)
    if not fixed and not converters:
        return in_order
    return lambda values: in_order(by_name(values))


def _in_order(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    if len(names) > 1:
        several: Callable[[Mapping[str, Any]], Sequence[Any]] = itemgetter(*names)
        return several
    return lambda values: [values[name] for name in names]


def _processor(compiled: SQLCompiler, bound: BindParameter[Any]) -> Callable[[Any], Any] | None:
    if isinstance(bound.type, Float):
        return None  # a float is the driver's own type; SQLAlchemy would look for decimals
    return bound.type.dialect_impl(compiled.dialect).bind_processor(compiled.dialect)


def _fixed(compiled: SQLCompiler, bound: BindParameter[Any]) -> Any:
    """What the statement itself gives, as the driver takes it."""
    convert = _processor(compiled, bound)
    return bound.effective_value if convert is None else convert(bound.effective_value)


def _reader(
    statement: Statement, dialect: Dialect, description: Sequence[Sequence[Any]]
) -> Callable[[Sequence[Any]], Any]:
    """From the driver's rows to the caller's. `description`: the cursor's, with the types."""
    columns = list(statement.exported_columns)
    names = [str(column.key) for column in columns]
    row: Any = namedtuple("Row", names)  # type: ignore[misc] # the statement names its columns
    found = [
        one.type.dialect_impl(dialect).result_processor(dialect, told[1])
        for one, told in zip(columns, description, strict=True)
    ]
    converters = [(place, convert) for place, convert in enumerate(found) if convert is not None]

    def converted(plain: Sequence[Any]) -> Any:
        values = list(plain)
        for place, convert in converters:
            values[place] = convert(values[place])
        return row(*values)

    as_it_is: Callable[[Sequence[Any]], Any] = row._make
    return converted if converters else as_it_is
