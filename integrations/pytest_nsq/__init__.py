"""A pytest fixture ``nsq`` with a real broker: ``docs/testing.md`` is the guide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_nsq.nsq import NSQ as NSQ
    from pytest_nsq.nsq import Fault as Fault

__all__ = ["NSQ", "Fault"]


def __getattr__(name: str) -> Any:
    # Imported when used: every run of pytest imports the plugin, and few request the fixture.
    if name in __all__:
        from pytest_nsq import nsq

        return getattr(nsq, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
