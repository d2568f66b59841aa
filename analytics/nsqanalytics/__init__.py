"""Reports on the cluster: the archive's schema and writer, the Spark jobs that read it, and the runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqanalytics.notebook import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """Import ``load``, and Arrow with it, when it is used: most processes that import this package need neither."""
    if name == "load":
        from nsqanalytics.notebook import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
