"""Iceberg catalogs by their URI: SQL catalogs in SQLite or PostgreSQL, and REST catalogs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG_VARIABLE = "NSQ_ICEBERG_CATALOG"
"""The environment variable with the catalog's URI. Empty: nothing is registered."""
FORMS = "sqlite:////path, postgresql://user:password@host:port/name, or the http or https URL of a REST catalog"
CATALOG_NAME = "nsq"
"""Name under which a SQL catalog keeps its tables, and under which pyiceberg's configuration is read."""
_CONNECT_TIMEOUT_S = 10


class CatalogUnusable(Exception):
    """The catalog does not answer, or refuses; the message is one line, without a password or a query."""


def is_catalog(uri: str) -> bool:
    """Return whether the URI has one of FORMS."""
    try:
        parts = urlsplit(uri)
        parts.port  # noqa: B018 it raises ValueError for a port that is not a number
    except ValueError:
        return False
    if parts.scheme == "sqlite":
        return parts.netloc == "" and parts.path.startswith("//") and len(parts.path) > 2
    if parts.scheme in ("postgres", "postgresql"):
        return len(parts.path) > 1
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def opened(uri: str, warehouse: str) -> Catalog:
    """Return the catalog at ``uri``. Raises CatalogUnusable.

    ``warehouse`` is where a SQL catalog would put tables without a location. A REST catalog has its own; what else it
    needs, such as a token, is in pyiceberg's configuration for the catalog CATALOG_NAME.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise CatalogUnusable(
            f"{CATALOG_VARIABLE} needs pyiceberg: pip install 'nsq-analytics[iceberg]' ({error})"
        ) from None
    if urlsplit(uri).scheme in ("http", "https"):
        properties: dict[str, Any] = {"type": "rest", "uri": uri}
    else:
        properties = {"type": "sql", "uri": _sqlalchemy_url(uri), "warehouse": warehouse}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        properties["s3.endpoint"] = endpoint
    try:
        return load_catalog(CATALOG_NAME, **properties)
    except Exception as error:
        raise unusable(uri, error) from error


def unusable(uri: str, error: Exception) -> CatalogUnusable:
    """Return the error for a catalog that failed, with the reason in one line."""
    cause: BaseException = getattr(error, "orig", None) or error
    text = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    parts = urlsplit(uri)
    for secret in filter(None, (parts.query, parts.password)):
        text = text.replace(secret, "***")
    return CatalogUnusable(f"the Iceberg catalog {shown(uri)} cannot be used: {text[:300]}")


def shown(uri: str) -> str:
    """Return the URI without its password and its query."""
    parts = urlsplit(uri)
    if parts.scheme == "sqlite":
        return f"sqlite://{parts.path}"
    user = f"{parts.username}@" if parts.username else ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{user}{parts.hostname or ''}{port}{parts.path}"


def _sqlalchemy_url(uri: str) -> str:
    """Return the URL for SQLAlchemy, with the driver that the platform uses, and a limit for connecting."""
    scheme, _, rest = uri.partition("://")
    if scheme == "sqlite":
        return uri
    if "connect_timeout" not in rest:
        rest += f"{'&' if '?' in rest else '?'}connect_timeout={_CONNECT_TIMEOUT_S}"
    return f"postgresql+psycopg://{rest}"
