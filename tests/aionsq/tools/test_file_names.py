"""Names of archive files."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from aionsq.tools.file_names import DEFAULT_DATETIME, DEFAULT_FORMAT, FileNames, date_text

WHEN = datetime(2026, 3, 7, 15, 4, 5, tzinfo=timezone(timedelta(hours=2), "EET"))


def names(form: str = DEFAULT_FORMAT, date_form: str = DEFAULT_DATETIME, **changes) -> FileNames:
    return FileNames(form, date_form, **{"topic": "orders", "host": "vm", "pid": 77, **changes})


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("%Y-%m-%d_%H", "2026-03-07_15"),
        ("%y%m%d %I:%M:%S %p", "260307 03:04:05 PM"),
        ("%B %b %A %a", "March Mar Saturday Sat"),
        ("%Z %z", "EET +0200"),
        ("100%%", "100%"),
        ("%q %j %", "%q %j %"),
        ("2006-01-02 Jan Mon MST PM", "2006-01-02 Jan Mon MST PM"),
    ],
)
def test_date_tokens(form, text):
    """NSQ's tokens are replaced; other text, also Go's date layouts, stays unchanged."""
    assert date_text(form, WHEN) == text


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "orders.vm.2026-03-07_15.log"),
        ({"revisions": True}, "orders.vm-000003.2026-03-07_15.log"),
        ({"revisions": True, "gzip": True}, "orders.vm-000003.2026-03-07_15.log.gz"),
        ({"form": "<TOPIC><REV>.gz", "revisions": True, "gzip": True}, "orders-000003.gz"),
        ({"form": "<TOPIC>/<DATETIME>/<HOST>.<PID>", "date_form": "%Y/%m"}, "orders/2026/03/vm.77"),
        ({"form": "/abs/%Y.<TOPIC>"}, "abs/%Y.orders"),
    ],
)
def test_tokens_of_the_format(given, name):
    """<REV> only if several files may have one name, .gz only if it is missing."""
    made = names(**given)
    assert made.revised(made.dated(WHEN), 3) == name


def test_the_revision_has_to_have_a_place():
    """Otherwise gzip, rotation and a work folder would overwrite files."""
    with pytest.raises(ValueError, match="missing <REV> in --filename-format when gzip, rotation, or work dir enabled"):
        names("<TOPIC>.log", revisions=True)


def test_a_topic_does_not_lead_out_of_the_folder():
    """Two dots are a valid topic name."""
    with pytest.raises(ValueError, match="cannot be part of a file name"):
        names("<TOPIC>/<DATETIME>", topic="..")


def test_existing_files_are_found_by_format(tmp_path):
    """Of any date, revision and process, in folders too; not those of other topics, hosts and programs."""
    form = "<TOPIC>/<DATETIME>.<HOST>.<PID><REV>.log"
    made = names(form, "%Y/%b-%d", revisions=True)
    mine = ["orders/2025/Dec-31.vm.1-000000.log", "orders/2026/Mar-07.vm.77-123456.log"]
    others = ["orders/2025/Dec-31.vm.1.log", "order/2025/Dec-31.vm.1-000000.log", "orders/2025/Dec-31.v.1-000000.log"]
    for name in (*mine, *others, "orders/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert made.existing(str(tmp_path)) == mine
    assert made.existing(str(tmp_path / "nowhere")) == []
    assert made.next_revision(mine[1]) == "orders/2026/Mar-07.vm.77-123457.log"
