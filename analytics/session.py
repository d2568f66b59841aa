"""Starting Spark: on this machine by default, on the cluster SPARK_MASTER names, or inside ``spark-submit``."""

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
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    # The default of 200 is for a cluster: here each empty partition costs a task.
    "spark.sql.shuffle.partitions": "8",
}
# A report over a laptop's archive is over before the optimising compiler has earned back what it costs; over a day of a
# thousand channels, it halves the time.
_QUICK_TO_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
_QUICK_TO_RUN = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # A day of a thousand channels is then sorted in pieces that fit the memory above.
    "spark.sql.shuffle.partitions": "32",
}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}


class MasterUnreachable(Exception):
    """Nothing answers at the address in SPARK_MASTER."""


@contextmanager
def spark_session(
    name: str, environ: Mapping[str, str] = os.environ, *, for_much: bool = False
) -> Iterator[SparkSession]:
    """A session for one job, stopped at the end; ``for_much`` is for an archive of more than some dozen megabytes.

    SPARK_MASTER unset: ``local[*]``. Under ``spark-submit``, its master and its Java are used. Raises JavaNotFound or
    MasterUnreachable, each with one line for the user; Spark itself would retry an absent master for a minute.
    """
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
        try:
            yield session
        finally:
            session.stop()


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
