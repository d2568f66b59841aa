"""The notebook of the documentation: its cells run as Jupyter runs them, and their figures are right."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nsqanalytics.archive import ArchiveWriter
from tests.harness.daemon import Broker
from tests.harness.process import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PAGE = ROOT / "docs" / "notebook.md"
RUN_S = 400
STEP = timedelta(minutes=5)

RUN = """
import json, sys, jupytext
namespace = {"__name__": "__main__"}
for number, cell in enumerate(jupytext.read(sys.argv[1]).cells):
    if cell.cell_type == "code":
        print(f"cell {number}", flush=True)
        exec(compile(cell.source, f"cell {number} of {sys.argv[1]}", "exec"), namespace)
counted = namespace["latency"].groupBy("topic", "channel").agg({"count": "sum"}).toDF("topic", "channel", "n").collect()
tenants = namespace["by_minute"].groupBy("tenant").agg({"messages": "sum"}).toDF("tenant", "n").collect()
figures = {
    "finished": {f"{row.topic}/{row.channel}": row.n for row in counted},
    "tenants": {row.tenant: row.n for row in tenants},
    "ids": sorted(row.id for row in namespace["archived"].collect()),
}
print("figures", json.dumps(figures), flush=True)
"""


def write_archive(folder: Path, broker: Any, lognormal: Any) -> dict[str, int]:
    """Write readings of the last three hours. Returns the number of finished messages of each channel."""
    rng, finished = random.Random(7), {"orders/billing": 0, "orders/mail": 0}
    at = broker.started_at
    for _ in range(36):
        for name in finished:
            count = rng.randrange(20, 60)
            for _ in range(count):
                broker.finish(*name.split("/"), lognormal(rng, 8.0), at + STEP / 2)
            finished[name] += count
        at += STEP
        ArchiveWriter(str(folder)).write(broker.sample(at))
    return finished


def test_the_notebook_runs_and_its_figures_are_those_of_archive_and_broker(
    make_broker: Any, lognormal: Any, tmp_path: Path
) -> None:
    """On an archive of three hours and a topic of a running broker, one cell after another in one namespace."""
    # At an hour: what a process counted before its first reading has a window only if it started in the same one.
    began = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    finished = write_archive(tmp_path / "var" / "archive", make_broker(started_at=began), lognormal)
    data = tmp_path / "data"
    data.mkdir()
    with Broker(data) as broker:
        broker.wait_until_ready()
        ids = []
        for number in range(40):
            order = json.dumps({"id": number, "cents": 100 * number}).encode()
            headers = {"X-NSQ-Header-Tenant": "acme" if number % 2 else "globex"}
            answer = broker.request("POST", "/pub?topic=orders&ids=true", order, headers)
            ids += json.loads(answer.text)["ids"]
        page = tmp_path / "notebook.md"
        page.write_text(re.sub(r"(?<=:)4151\b", str(broker.http[1]), PAGE.read_text()))
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(page)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'analytics'}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    assert len(re.findall(r"^cell \d+$", done.stdout, re.M)) == PAGE.read_text().count("\n```python\n")
    figures = json.loads(done.stdout.rpartition("figures ")[2])
    assert figures == {"finished": finished, "tenants": {"acme": 20, "globex": 20}, "ids": sorted(ids)}
    for line in (r"\|40 *\|40 *\|", r"\|40 *\|78000 *\|", r"\|orders *\|billing *\|"):
        assert re.search(line, re.sub(r"\| +", "|", done.stdout)), (line, done.stdout)
