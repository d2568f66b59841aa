"""The current cluster: that of the request, of the task, or of the collector's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar

from django.conf import settings

from nsqplatform.clusters.declaration import DEFAULT, Declaration, redis_prefix

T = TypeVar("T")
P = ParamSpec("P")

_entered: ContextVar[str | None] = ContextVar("cluster", default=None)
_of_process = DEFAULT


class NoSuchCluster(Exception):
    """No cluster of this name is declared."""


def name() -> str:
    """The current cluster's name: the entered one, else that of the process, else the default one."""
    return _entered.get() or _of_process


def names() -> list[str]:
    """The names of all clusters, the default one first."""
    return [each.name for each in settings.CLUSTERS]


def declared(cluster: str) -> Declaration:
    """Raises NoSuchCluster."""
    for each in settings.CLUSTERS:
        if each.name == cluster:
            return each
    raise NoSuchCluster(f"there is no cluster {cluster!r}; NSQ_CLUSTERS declares {', '.join(names())}")


def declaration() -> Declaration:
    return declared(name())


def set_for_process(cluster: str) -> None:
    """Set the current cluster of all threads of this process. Raises NoSuchCluster."""
    global _of_process
    _of_process = declared(cluster).name


def enter(cluster: str) -> None:
    """Set the current cluster of this thread, which a new thread does not inherit."""
    _entered.set(declared(cluster).name)


@contextmanager
def entered(cluster: str) -> Iterator[None]:
    """Set the current cluster within a ``with`` block. Raises NoSuchCluster."""
    token = _entered.set(declared(cluster).name)
    try:
        yield
    finally:
        _entered.reset(token)


def in_every_cluster(call: Callable[P, None]) -> Callable[P, None]:
    """Decorator: call the function once for each cluster, one after the other."""

    @wraps(call)
    def repeated(*arguments: P.args, **keywords: P.kwargs) -> None:
        for cluster in names():
            with entered(cluster):
                call(*arguments, **keywords)

    return repeated


# ---- of the current cluster


def title(cluster: str | None = None) -> str:
    """A cluster's name on pages."""
    found = declaration() if cluster is None else declared(cluster)
    return found.title or found.name


def with_title(text: str) -> str:
    """``text`` after the cluster's title if there are several clusters. For texts that are read outside of the
    pages."""
    return f"{title()}: {text}" if len(names()) > 1 else text


def lookupd_http_addresses() -> tuple[str, ...]:
    found = declaration()
    return settings.NSQLOOKUPD_HTTP_ADDRESSES if found.name == DEFAULT else found.lookupd_http_addresses


def nsqd_http_addresses() -> tuple[str, ...]:
    found = declaration()
    return settings.NSQD_HTTP_ADDRESSES if found.name == DEFAULT else found.nsqd_http_addresses


def archive() -> str:
    """The folder of the cluster's archive; unless declared, it is beside that of the default cluster."""
    found = declaration()
    return settings.NSQ_ARCHIVE if found.name == DEFAULT else found.archive or f"{settings.NSQ_ARCHIVE}-{found.name}"


def namespace() -> str:
    """The namespace of the tables of the cluster's archive in an Iceberg catalog."""
    found = declaration()
    return "nsq" if found.name == DEFAULT else f"nsq_{found.name.replace('-', '_')}"


def history() -> Path:
    """The folder of the cluster's history; unless declared, it is beside that of the default cluster."""
    base: Path = settings.NSQ_HISTORY
    found = declaration()
    if found.name == DEFAULT:
        return base
    return Path(found.history) if found.history else base.with_name(f"{base.name}-{found.name}")


def path(cluster: str | None = None) -> str:
    """The prefix of the paths of a cluster's pages and API, after the base path; empty for the default cluster."""
    cluster = cluster or name()
    return "" if cluster == DEFAULT else f"/c/{cluster}"


class Key:
    """A key in Redis. Each cluster has its own: ``key()`` is the current one's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> str:
        return redis_prefix(name()) + self._name


class PerCluster(Generic[T]):
    """One object for each cluster, made on first use: ``each()`` is the current one's."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[str, T] = {}

    def __call__(self) -> T:
        cluster = name()
        found = self._made.get(cluster)
        # setdefault: of two threads, both get the object of the first.
        return self._made.setdefault(cluster, self._make()) if found is None else found
