"""The declared figures: every list of figures follows from one declaration."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nsqplatform.cluster.history import records
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.reading import NodeView, Reading
from nsqplatform.cluster.readings.stats import parse_stats
from nsqplatform.cluster.snapshots.builder import SnapshotBuilder
from nsqplatform.cluster.snapshots.delta import Deltas
from nsqplatform.cluster.snapshots.figure_files import ROOT, files
from nsqplatform.cluster.snapshots.latency import LatencyWindow
from nsqplatform.cluster.snapshots.snapshot import KINDS, Snapshot, View
from nsqplatform.cluster.snapshots.table import FIGURES, KEYS, SHARES, TEXTS, Table
from nsqwire.figures import RATE, of_scope

LINE = (
    '    Figure("channel", "poison_count", COUNTER, "messages", "given up", in_share=True, archived_since=5, '
    'history="poison", alert=Alert("Poison", "Messages given up.")),\n'
)
ONE_MORE = {'    Figure("topic", "depth"': LINE + '    Figure("topic", "depth"'}
PROBE = Path(__file__).with_name("figure_probe.py")


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The platform's handling of a declaration with one more line."""
    return handling(tmp_path_factory.mktemp("declaration"), ONE_MORE)


def handling(folder: Path, changes: dict[str, str]) -> dict[str, Any]:
    """The platform's handling of a declaration with one more line, and with other changes of its text."""
    copy = folder / "nsqwire"
    shutil.copytree(ROOT / "nsqwire", copy, ignore=shutil.ignore_patterns("__pycache__"))
    declaration = copy / "figures.py"
    text = declaration.read_text()
    for before, after in changes.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    declaration.write_text(text)
    folders = [copy.parent, ROOT, ROOT / "platform", ROOT / "analytics"]
    done = subprocess.run(
        [sys.executable, PROBE],
        cwd=copy.parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_added_figure_is_read_and_summed_over_nodes(added):
    """Two nodes report 7 and 70."""
    assert added["row"] == 77
    assert added["shares"] == [{"node": "a:1", "poison_count": 7}, {"node": "b:1", "poison_count": 70}]


def test_nodes_are_combined_as_declared(added, tmp_path):
    """In the collector's snapshot, in listings such as ``nsq channels``, and in nsqadmin's API."""
    assert added["received"] == {"snapshot": 4, "listing": 4, "nsqadmin": 4}
    largest = handling(tmp_path, {**ONE_MORE, '"counter", "sum"': '"counter", "largest"'})
    assert largest["received"] == {"snapshot": 2, "listing": 2, "nsqadmin": 2}


def test_an_added_figure_is_in_deltas_and_in_the_wire_order(added):
    """The browser receives its changes, and can decode the shares."""
    assert added["delta"] == {"keys": ["t/c"], "poison_count": [77], "nodes": added["wire_shares"]}
    assert added["typescript_share"] == added["share_fields"]


def test_an_added_figure_is_in_the_api_and_so_in_the_web_apps_types(added):
    """The types are generated from the OpenAPI document."""
    assert added["openapi"] == {"title": "Poison Count", "type": "integer"}
    assert "poison_count" in added["openapi_required"]


def test_an_added_figure_is_recorded_and_archived(added):
    """In the history under its name, and in a column of the archive that older files may lack."""
    assert added["history"] == 77.0
    assert added["archived"] == [0, 7]
    assert added["version"] == 5
    assert added["column"] == {"unit": "messages", "meaning": "counter: given up", "nullable": True}


def test_records_of_a_release_without_the_added_figure_are_not_misread(added):
    """After an upgrade, the collector begins new rings for the series whose records have another size."""
    before = {scope: records.key_of(scope, "t/c") for scope in records.SCOPES}
    assert [scope for scope in before if added["rings"][scope] != before[scope]] == ["channel"]


def test_an_added_figure_is_an_alert_metric_and_documented(added):
    """A rule can watch it, and docs/figures.md lists it."""
    assert added["alert"] == {"title": "Poison", "unit": "messages", "value": 77.0}
    assert "| `poison_count` | messages | counter | given up | `poison_count` of `/stats` |" in added["docs"]


@pytest.mark.parametrize("path", list(files()), ids=str)
def test_the_files_made_from_the_declaration_are_up_to_date(path):
    """``make docs`` writes them."""
    assert (ROOT / path).read_text() == files()[path]


def test_every_column_of_a_row_is_a_key_a_text_or_a_figure():
    """So no delta can omit one."""
    snapshot = small_snapshot(1)
    for kind in KINDS:
        expected = {*KEYS[kind], *TEXTS[kind], *FIGURES[kind], *(["nodes"] if kind in SHARES else [])}
        assert set(snapshot.tables[kind].columns) == expected


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in FIGURES[kind]])
def test_a_change_of_any_figure_is_in_the_delta(kind, name):
    """The other columns of the row are unchanged."""
    before = small_snapshot(1)
    columns = {**before.tables[kind].columns, name: [12345]}
    after = Snapshot(2, 1000, {**before.tables, kind: Table(kind, columns)})
    changes = Deltas(before, after).of(View())[kind]
    assert changes["set"] == {"keys": [*before.tables[kind]], name: [12345]}
    assert not changes["put"]


def test_rates_and_sums_refer_to_declared_figures():
    """This test finds a misspelt name in the declaration."""
    for scope in ("cluster", "node", "topic", "channel"):
        names = {figure.name for figure in of_scope(scope)}
        for figure in of_scope(scope):
            assert figure.kind is not RATE or figure.rate_of or figure.sum_of
            assert not figure.rate_of or figure.rate_of in names
            for each in figure.sum_of:
                inner, _, name = each.partition(".")
                assert inner in ("topic", "channel")
                assert not name or name in {other.name for other in of_scope(inner)}


def test_the_documented_path_of_a_depth_in_the_browser_exists():
    """Each module and function that docs/architecture.md names. A test of the platform traces the path before it."""
    section = (ROOT / "docs/architecture.md").read_text().partition("### The path of a depth figure")[2]
    rows = re.findall(r"^\| `(\S+\.(?:ts|svelte))` \| (?:`([^`]+)` )?\|", section.partition("\n### ")[0], re.MULTILINE)
    assert len(rows) == 7
    for file, function in rows:
        text = (ROOT / "frontend/src" / file).read_text()
        declared = rf"(function |const |^  ){re.escape(function)}\b"
        assert not function or re.search(declared, text, re.MULTILINE), f"{file} has no {function}"


def small_snapshot(version: int) -> Snapshot:
    """One node with one topic and one channel."""
    channel = {"channel_name": "c", "depth": 1, "message_count": 2}
    topic = {"topic_name": "t", "depth": 3, "message_count": 4, "channels": [channel]}
    stats = parse_stats(json.dumps({"version": "1", "boot_id": "b", "topics": [topic]}).encode())
    reading = Reading(stats, read_at=float(version), taken_at_s=float(version))
    view = NodeView(node=Node(id="a:1", address="a:1"), error=None, latest=reading)
    return SnapshotBuilder(LatencyWindow()).build([view], {}, version=version, taken_at_ms=1000)
