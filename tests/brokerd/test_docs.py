"""Pages in docs/ that are generated from declarations, and those whose examples are run."""

from __future__ import annotations

import json
import re
from pathlib import Path

from brokerd.settings import BrokerSettings
from nsqdaemon.settings import markdown

DOCS = Path(__file__).parents[2] / "docs"


def test_the_docs_list_all_settings() -> None:
    """docs/settings-nsqd.md contains the table of the declarations; ``make docs`` writes it."""
    assert (DOCS / "settings-nsqd.md").read_text().endswith("\n\n" + markdown(BrokerSettings))


def test_the_publishers_page_works_as_written(broker):
    """Its Python example, unchanged but for the address, publishes three messages; its table has every answer of both
    paths."""
    page = (DOCS / "publishers.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    host, port = broker.http
    exec(example.replace("127.0.0.1:4151", f"{host}:{port}"), {})
    (topic,) = json.loads(broker.request("GET", "/stats?format=json").text)["topics"]
    assert (topic["topic_name"], topic["depth"]) == ("orders", 3)
    for target, body in [
        ("/pub", b"x"),
        ("/pub?topic=a%20b", b"x"),
        ("/pub?topic=t&defer=x", b"x"),
        ("/pub?topic=t&ids=x", b"x"),
        ("/pub?topic=t&dedup_id=", b"x"),
        ("/pub?topic=t", b""),
        ("/pub?topic=t", bytes((1 << 20) + 1)),
        ("/mpub?topic=t&binary=true", b"\0\0\0\2"),
        ("/mpub?topic=t&binary=true", b"\0\0\0\0"),
        ("/mpub?topic=t", bytes(5 * (1 << 20) + 1)),
    ]:
        answer = broker.request("POST", target, body)
        message = json.loads(answer.text)["message"]
        (row,) = [line for line in page.splitlines() if line.startswith("| ") and f"`{message}`" in line]
        assert row.startswith(f"| {answer.status} |")
