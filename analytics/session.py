"""Starting Spark: on this machine by default, on the cluster that SPARK_MASTER names, inside ``spark-submit``, or at
the Spark Connect server that SPARK_REMOTE names."""

from __future__ import annotations

import logging
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_TIMEOUT_S = 5
_CONNECT_PORT = 15002
"""Where a Spark Connect server is, if its address names no port (Spark's documentation)."""
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    # The default of 200 is for a cluster: here each empty partition costs a task.
    "spark.sql.shuffle.partitions": "8",
    # The files of rollups, an hour each, would be looked up by a task each.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
# A report over a laptop's archive is over before the optimising compiler has earned back what it costs; over a day of a
# thousand channels, it halves the time.
_QUICK_TO_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
_QUICK_TO_RUN = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # A day of a thousand channels is then gathered in pieces that fit the memory above.
    "spark.sql.files.maxPartitionBytes": "32m",
    "spark.sql.shuffle.partitions": "32",
}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Readings are gathered by series and hour, and a file has as many of those as an hour has channels: with more than
    # these, all readings would be sorted first. What a task holds is bounded by the bytes that it reads.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Java interprets a method of more than 8,000 bytes for ever. Spark compiles a plan in smaller ones if told of it.
    "spark.sql.codegen.hugeMethodLimit": "8000",
}

_PARTITIONS, _SPARKS_PARTITIONS, _PARTITIONS_OF_A_REPORT = "spark.sql.shuffle.partitions", "200", "32"


class MasterUnreachable(Exception):
    """Nothing answers at the address in SPARK_MASTER or SPARK_REMOTE, or nothing could ask there."""


@contextmanager
def spark_session(
    name: str, environ: Mapping[str, str] = os.environ, *, for_much: bool = False
) -> Iterator[SparkSession]:
    """A session for one job, stopped at the end; ``for_much`` is for an archive of more than some dozen megabytes.

    SPARK_MASTER unset: ``local[*]``. Under ``spark-submit``, its master and its Java are used; with SPARK_REMOTE, a
    server's, and no Java here. Raises JavaNotFound or MasterUnreachable, each with one line for the user; Spark itself
    would retry an absent master for a minute.
    """
    if remote := environ.get("SPARK_REMOTE"):
        session = _at_server(remote, name)
        try:
            yield session
        finally:
            session.stop()
        return
    submitted = "PYSPARK_GATEWAY_PORT" in environ
    master = environ.get("SPARK_MASTER") or "local[*]"
    with tempfile.TemporaryDirectory(prefix="nsq-java-") as folder:
        if not submitted:
            _check_reachable(master)
            os.environ["JAVA_HOME"] = str(find_java(environ).spark_home(Path(folder)))
            if master.startswith("local"):
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        # It tells of each of its connections, the last time when Python is half gone.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        builder = SparkSession.builder.appName(name)
        settings = dict(_SETTINGS)
        if not submitted:
            builder = builder.master(master)
            if master.startswith("local"):
                settings |= _LOCAL_SETTINGS | (_QUICK_TO_RUN if for_much else _QUICK_TO_START)
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        # Most of Spark's 200 would be empty, and each costs a task. Whoever chose a number keeps it.
        if not session.sparkContext.getConf().contains(_PARTITIONS):
            session.conf.set(_PARTITIONS, _PARTITIONS_OF_A_REPORT)
        try:
            yield session
        finally:
            session.stop()


def is_connect(session: SparkSession) -> bool:
    """Whether the session is a client of a Spark Connect server, which has no JVM here to ask."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _at_server(remote: str, name: str) -> SparkSession:
    """A session at ``sc://host:port/;…``. Raises MasterUnreachable."""
    found = re.match(r"sc://(\[[^\[\]]+\]|[^/:]+)(?::(\d+))?(?:/|$)", remote)
    if found is None:
        raise MasterUnreachable(f"SPARK_REMOTE={remote} is not of the form sc://host:port")
    try:
        import grpc  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise MasterUnreachable("SPARK_REMOTE is set, and its client is missing: pip install 'nsq[connect]'") from None
    try:
        address = found[1].strip("[]"), int(found[2] or _CONNECT_PORT)
        socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise MasterUnreachable(f"the Spark Connect server {remote} cannot be reached ({error})") from None
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).remote(remote)
    for key, value in _SETTINGS.items():
        if key.startswith("spark.sql."):  # the rest is the server's
            builder = builder.config(key, value)
    session = builder.create()
    if session.conf.get(_PARTITIONS) == _SPARKS_PARTITIONS:
        session.conf.set(_PARTITIONS, _PARTITIONS_OF_A_REPORT)
    return session


def _check_reachable(master: str) -> None:
    """Raises MasterUnreachable if none of the hosts in ``spark://host:port,host:port`` takes a connection."""
    if not master.startswith("spark://"):
        return
    refused = []
    for address in master.removeprefix("spark://").split(","):
        found = re.fullmatch(r"\[?([^\[\]]+)\]?:(\d+)", address)
        if found is None:
            raise MasterUnreachable(f"SPARK_MASTER={master} is not of the form spark://host:port")
        try:
            socket.create_connection((found[1], int(found[2])), timeout=_CONNECT_TIMEOUT_S).close()
            return
        except (OSError, OverflowError) as error:
            refused.append(f"{address}: {error}")
    raise MasterUnreachable(f"the Spark master {master} cannot be reached ({'; '.join(refused)})")
