"""The files of a deleted topic are removed in the background: no client waits for a slow disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import wait_until

Start = Callable[..., Any]

SLOW = """
import os, time
from pathlib import Path

real = os.unlink
def unlink(path, **options):
    while ".deleted" in str(path) and Path({slow!r}).exists():
        time.sleep(0.01)
    real(path, **options)
os.unlink = os.remove = unlink
"""
"""As a ``sitecustomize``: a deleted topic's file is removed once a certain file is gone."""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """While this file exists, the disk of the started brokers is slow."""
    path = tmp_path / "slow"
    path.touch()
    (tmp_path / "sitecustomize.py").write_text(SLOW.format(slow=str(path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield path
    path.unlink(missing_ok=True)


def folders(broker: Any) -> list[str]:
    return sorted(path.name for path in broker.data_path.glob("topics/*"))


def test_others_do_not_wait_while_a_deleted_topic_is_removed(slow: Path, start_broker: Start) -> None:
    """The topic is created again at once; the old folder is removed as fast as the disk permits."""
    broker = start_broker()
    assert broker.request("POST", "/pub?topic=t", b"x").status == 200
    assert broker.request("POST", "/topic/delete?topic=t").status == 200
    assert broker.request("POST", "/pub?topic=t", b"x").status == 200
    assert folders(broker) == ["t.0.deleted", "t.1"]
    slow.unlink()
    wait_until(lambda: folders(broker) == ["t.1"])


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_a_removal_interrupted_by_the_end_is_completed_by_the_next_start(
    end: str, slow: Path, start_broker: Start
) -> None:
    """Neither the end nor the start waits for it."""
    broker = start_broker()
    for topic in "ab":
        assert broker.request("POST", f"/pub?topic={topic}", b"x").status == 200
        assert broker.request("POST", f"/topic/delete?topic={topic}").status == 200
    assert not getattr(broker, end)()
    assert folders(broker) == ["a.0.deleted", "b.1.deleted"]
    again = start_broker(data_path=broker.data_path)
    assert again.stats()["topics"] == []
    assert folders(again) == ["a.0.deleted", "b.1.deleted"]
    slow.unlink()
    wait_until(lambda: folders(again) == [])
