"""Insertion of many rows at once, beside Django's own."""

from __future__ import annotations

import pytest
from django.utils import timezone

pytestmark = [pytest.mark.django_db, pytest.mark.database]

ROWS = 200
"""More than one statement takes in SQLite."""


def test_rows_are_those_of_bulk_create_and_keys_are_in_order():
    """With text that is not ASCII, null, JSON and times."""
    from nsqplatform.accounts.models import AuditEntry
    from nsqplatform.insertion import insert

    at = timezone.now()
    fields = [field.name for field in AuditEntry._meta.concrete_fields if not field.primary_key]

    def entry(number: int) -> AuditEntry:
        results = [{"node": f"node {number}", "outcome": "done", "detail": "ü'\"%s"}]
        channel = None if number % 2 else "billing"
        return AuditEntry(
            at=at, user="ana", action="delete", topic=f"orders.ü.{number}", channel=channel, results=results, job=number
        )

    entries = [entry(number) for number in range(ROWS)]
    keys = insert(AuditEntry, fields, [[getattr(each, name) for name in fields] for each in entries])
    AuditEntry.objects.bulk_create(entries)
    AuditEntry.objects.filter(pk__gt=keys[-1]).update(at=at)  # bulk_create sets its own
    inserted = list(AuditEntry.objects.filter(pk__in=keys).order_by("pk").values(*fields))
    expected = list(AuditEntry.objects.exclude(pk__in=keys).order_by("pk").values(*fields))
    assert len(expected) == ROWS
    assert inserted == expected
    assert [AuditEntry.objects.get(pk=key).job for key in keys] == list(range(ROWS))


def test_no_rows_are_no_statement(django_assert_num_queries):
    """As when no server was changed by an action."""
    from nsqplatform.accounts.models import ChangedNode
    from nsqplatform.insertion import insert

    with django_assert_num_queries(0):
        assert insert(ChangedNode, ("entry", "node", "at"), []) == []
