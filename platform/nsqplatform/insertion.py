"""Insertion of thousands of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from django.db import connection, models

MAX_PARAMETERS = 10_000
"""Largest number of parameters in one statement, if the database has no smaller limit."""


def insert(model: type[models.Model], fields: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[int]:
    """Insert rows, each with the values of ``fields``, and return their primary keys in the same order.

    ``fields`` must be all of the model's fields but the key; foreign keys are given by their keys. No instances of the
    model are created: for thousands of rows, ``bulk_create`` takes several times as long.
    """
    known = {field.name: field for field in model._meta.concrete_fields}
    columns = [known[name] for name in fields]
    times = [number for number, field in enumerate(columns) if isinstance(field, models.DateTimeField)]
    documents = [number for number, field in enumerate(columns) if isinstance(field, models.JSONField)]
    values = [list(row) for row in rows]
    for number in times:  # rows that are inserted together often share a time
        at = {time: columns[number].get_db_prep_save(time, connection) for time in {row[number] for row in values}}
        for row in values:
            row[number] = at[row[number]]
    for number in documents:
        for row in values:
            row[number] = columns[number].get_db_prep_save(row[number], connection)
    quote = connection.ops.quote_name
    names = ", ".join(quote(str(field.column)) for field in columns)
    into = f"INSERT INTO {quote(model._meta.db_table)} ({names}) VALUES "
    returning = f" RETURNING {quote(str(model._meta.pk.column))}"
    marks = f"({', '.join(['%s'] * len(columns))})"
    size = max(1, (connection.features.max_query_params or MAX_PARAMETERS) // len(columns))
    keys: list[int] = []
    with connection.cursor() as cursor:
        for start in range(0, len(values), size):
            part = values[start : start + size]
            cursor.execute(into + ", ".join([marks] * len(part)) + returning, [*chain.from_iterable(part)])
            keys += [key for (key,) in cursor.fetchall()]
    return keys
