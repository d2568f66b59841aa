"""Java classes that PySpark uses for each column that it creates, looked up once for a session.

PySpark names a class and a method for each call, and py4j asks Java what each of the two names means. For a class with
as many methods as ``functions``, the answer takes longer than the call. In a report, this is a quarter of the time that
Java spends on planning.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember

_KNOWN = (
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.types.Metadata",
)


def know_classes(jvm: Any) -> None:
    """Make a gateway's view of Java return these classes without asking Java, by their full and their short names."""
    for name in _KNOWN:
        known = _KnownClass(name, jvm._gateway_client)
        setattr(jvm, name, known)
        setattr(jvm, name.rpartition(".")[2], known)


class _KnownClass(JavaClass):  # type: ignore[misc, unused-ignore]
    """A class that keeps its static methods once they are found."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found
