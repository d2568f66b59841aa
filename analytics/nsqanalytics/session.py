"""Starts Spark: on this machine by default, on the cluster that SPARK_MASTER names, inside ``spark-submit``, or at
the Spark Connect server that SPARK_REMOTE names."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from nsqanalytics.class_archive import class_archive
from nsqanalytics.files import FEW_BYTES
from nsqanalytics.java import find_java
from nsqanalytics.master import FORMS, is_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_TIMEOUT_S = 5
_CONNECT_PORT = 15002
"""The default port of a Spark Connect server (Spark's documentation)."""
_PARTITIONS, _PARTITIONS_OF_A_REPORT = "spark.sql.shuffle.partitions", "32"
_SOME_BYTES, _MANY_BYTES = 8_000_000, 256_000_000
"""Sizes of the samples of 150 channels of some hours, and of 1,000 channels of a day with a reading every minute."""
ROWS_PER_BATCH = 1000
"""The number of rows that Spark passes to Python at once."""
_MEMORY, MEMORY_VARIABLE = "spark.driver.memory", "SPARK_DRIVER_MEMORY"
"""The setting, and Spark's own environment variable for it."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    _MEMORY: "2g",
    # The default of 200 is for a cluster. Each empty partition is a task.
    _PARTITIONS: "8",
    # Otherwise each Python process has as many threads for a sum of a few hundred numbers as there are processors.
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    # Otherwise Spark runs a task for each file to list it.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
# Java's optimising compiler costs more time than it saves, unless it merges many rows of ACTIVITY. Without that
# compiler, Java reserves 48 MiB for compiled code, not 240; a session of several reports fills them, and Java then
# removes and compiles code over and over.
# Spark allocates and zeroes at least one page per joined table, by default 32 MB. A row may be larger than a page.
_QUICK_TO_START = {
    _JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
    "spark.buffer.pageSize": "1m",
}
# Adaptive execution plans again after each shuffle, and each partition is a task.
_IN_FEW_TASKS = _QUICK_TO_START | {
    "spark.sql.adaptive.enabled": "false",
    _PARTITIONS: "2",
}
# For few rows, generating, compiling and loading some hundred classes takes longer than interpreting the expressions.
# The rows are in one partition (nsqanalytics/computation.py, rollups.py), and so are those of each shuffle.
_IN_ONE_TASK = _IN_FEW_TASKS | {
    _PARTITIONS: "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_QUICK_TO_RUN = {
    _JAVA_OPTIONS: "-XX:+UseParallelGC",
    # So that the tasks that read many rollups fit into the memory above.
    "spark.sql.files.maxPartitionBytes": "32m",
    _PARTITIONS: "32",
}
_BY_SIZE = (_IN_ONE_TASK, _IN_FEW_TASKS, _QUICK_TO_START, _QUICK_TO_RUN)
_WARM_JAVA = "-XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
"""Java otherwise lets the heap grow to its limit before it looks for garbage in all of it, and keeps that memory."""
_WARM = {
    # Spark remembers the last jobs, stages and queries for its page, which has none here.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "10",
}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Medians of sampled messages are by channel and client. If a task has more of them than this, Spark sorts all rows
    # first, which is slow. The memory of a task is bounded by the bytes that it reads.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Java never compiles methods of more than 8,000 bytes. With this limit, Spark generates smaller ones.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Below this limit, the largest there is, Spark adds up the size of a batch after each row, lists included: most of
    # the time of a small report. Batches are limited by their rows, the largest of which have READINGS_IN_ROW readings.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH),
    # Otherwise each operation on a column looks up its line in Python's sources: half of Python's time.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

_REGISTERED_WITHIN_S = 50
"""Longest time from the start of Java to the master's answer. Spark itself fails after a minute, with an unrelated
error."""
_EXECUTORS_WITHIN_S = 35
"""How long a cluster may take to provide the first executor. Spark itself waits without limit."""


class MasterUnreachable(Exception):
    """The address in SPARK_MASTER or SPARK_REMOTE is invalid or does not answer, or the master has no workers."""


class JavaDied(Exception):
    """The Java process that runs Spark ended in the middle of a run."""


@contextmanager
def spark_session(
    name: str,
    environ: Mapping[str, str] = os.environ,
    *,
    size: int | None = None,
    class_options: str | None = None,
    is_warm: bool = False,
) -> Iterator[SparkSession]:
    """Yield a session for one job that reads ``size`` bytes of content, None if unknown, and stop it at the end.

    On this machine, Java maps the archive of Spark's classes if there is one, or gets ``class_options`` instead. With
    ``is_warm``, the session is kept for several jobs, and Java returns memory that they do not use. The
    session is on the master in SPARK_MASTER, by default ``local[*]``. Under ``spark-submit``, it uses the master
    and the Java of that. With SPARK_REMOTE, it is on a Spark Connect server and needs no Java here. Java's heap is
    that of SPARK_DRIVER_MEMORY, on this machine by default 2 GiB. Raises JavaNotFound, MasterUnreachable, JavaDied or,
    if that variable is not a size, ValueError, each with one line for the user.
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
    classes = None
    variables: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="nsq-java-") as folder:
        if not submitted:
            _check_master(master, environ)
            memory = _driver_memory(environ)
            java = find_java(environ)
            variables["JAVA_HOME"] = str(java.spark_home(Path(folder)))
            if master.startswith("local"):
                variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
                # The processes that run Python for Spark need our packages, which the PATH's python3 may lack.
                variables["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
        from pyspark.sql import SparkSession

        from nsqanalytics.known_classes import know_classes

        # py4j logs each of its connections, even while Python is shutting down.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        builder = SparkSession.builder.appName(name)
        settings = dict(_SETTINGS)
        if not submitted:
            builder = builder.master(master)
            if master.startswith("local"):
                settings |= _LOCAL_SETTINGS | _settings_for(size)
                if class_options is None and (classes := class_archive(java, environ)) is not None:
                    class_options = classes.options()
                settings[_JAVA_OPTIONS] += f" {class_options or ''}"
                settings[_MEMORY] = memory or settings[_MEMORY]
                if is_warm:
                    settings = settings | _WARM | {_JAVA_OPTIONS: f"{settings[_JAVA_OPTIONS]} {_WARM_JAVA}"}
        for key, value in settings.items():
            builder = builder.config(key, value)
        with java_watched():
            standalone = master.startswith("spark://") and not submitted
            with _environment(variables):
                session = _registered(builder, master) if standalone else builder.getOrCreate()
            try:
                know_classes(session.sparkContext._jvm)
                if standalone:
                    _await_executor(session, master)
                # Most of Spark's 200 partitions would be empty, and each costs a task. A configured number is kept.
                if not session.sparkContext.getConf().contains(_PARTITIONS):
                    session.conf.set(_PARTITIONS, _PARTITIONS_OF_A_REPORT)
                yield session
            finally:
                _stop(session)
    if classes is not None:
        classes.create_in_background()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that the block starts.

    Afterwards they are as before: JAVA_HOME may name a script in a temporary folder, which is no Java of this machine.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _settings_for(size: int | None) -> dict[str, str]:
    """Return the settings of a local session that depend on the number of bytes it reads, None if unknown."""
    if size is not None and size <= FEW_BYTES:
        return _IN_ONE_TASK
    if size is None or size <= _SOME_BYTES:
        return _IN_FEW_TASKS
    return _QUICK_TO_START if size <= _MANY_BYTES else _QUICK_TO_RUN


def is_small(size: int) -> bool:
    """Whether a job that reads ``size`` bytes is quick in a session whose Java was started for small ones."""
    return size <= _MANY_BYTES


def set_for_size(session: SparkSession, size: int) -> None:
    """Set what depends on the number of bytes that a job reads and can be changed in a running session.

    A setting that this size leaves at its default is removed: the session has those of the size for which Java was
    started.
    """
    settings = _LOCAL_SETTINGS | _settings_for(size)
    for key in sorted({key for of_size in _BY_SIZE for key in of_size if key.startswith("spark.sql.")}):
        if key in settings:
            session.conf.set(key, settings[key])
        else:
            session.conf.unset(key)


def is_connect(session: SparkSession) -> bool:
    """Whether the session is a client of a Spark Connect server, so that this process has no JVM."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_on_this_machine(session: SparkSession) -> bool:
    """Whether the tasks of the session run on this machine, so that they can read what this process can."""
    return not is_connect(session) and str(session.sparkContext.master).startswith("local")


def _at_server(remote: str, name: str) -> SparkSession:
    """Return a session on the server ``sc://host:port/;…``. Raises MasterUnreachable."""
    found = re.match(r"sc://(\[[^\[\]]+\]|[^/:]+)(?::(\d+))?(?:/|$)", remote)
    if found is None:
        raise MasterUnreachable(f"SPARK_REMOTE={remote} is not of the form sc://host:port")
    try:
        import grpc  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise MasterUnreachable(
            "SPARK_REMOTE is set, and its client is missing: pip install 'nsq-analytics[connect]'"
        ) from None
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
    if _PARTITIONS not in session.conf.getAll:
        session.conf.set(_PARTITIONS, _PARTITIONS_OF_A_REPORT)
    return session


def _registered(builder: SparkSession.Builder, master: str) -> SparkSession:
    """Return the session once the master has answered. Raises MasterUnreachable.

    The port may be that of another program. Spark would then try for a minute and raise an unrelated error.
    """
    gave_up = threading.Event()
    answered = threading.Event()

    def give_up() -> None:
        while (java := own_java()) is None:
            if answered.wait(0.2):
                return
        if not answered.wait(_REGISTERED_WITHIN_S):
            gave_up.set()
            java.kill()

    threading.Thread(target=give_up, name="master", daemon=True).start()
    try:
        return builder.getOrCreate()
    except Exception as error:
        if gave_up.is_set() or "All masters are unresponsive" in str(error):
            raise MasterUnreachable(
                f"{master} accepts connections and does not answer as a Spark master: check the port, and that its "
                "version of Spark is this one's"
            ) from None
        raise
    finally:
        answered.set()


def _await_executor(session: SparkSession, master: str) -> None:
    """Wait until a worker has run a task. Raises MasterUnreachable if none does in time."""
    context, group = session.sparkContext, "nsq-first-task"
    context.setJobGroup(group, "wait for an executor")
    gave_up = threading.Event()

    def give_up() -> None:
        driver_and_executors = context._jsc.sc().getExecutorMemoryStatus().size()
        if driver_and_executors == 1:
            gave_up.set()
            context.cancelJobGroup(group)

    timer = threading.Timer(_EXECUTORS_WITHIN_S, give_up)
    timer.start()
    try:
        session.range(1).count()
    except Exception:
        if gave_up.is_set():
            raise MasterUnreachable(
                f"no worker of the Spark master {master} took a task within {_EXECUTORS_WITHIN_S} s: start one, or "
                "free its cores and memory"
            ) from None
        raise
    finally:
        timer.cancel()


@contextmanager
def java_watched() -> Iterator[None]:
    """If the Java process has ended, raise JavaDied instead of the errors of Spark's Python code."""
    try:
        yield
    except MasterUnreachable:
        raise
    except Exception as error:
        if (java := own_java()) is None:
            raise
        try:
            status = java.wait(1)  # the connection is lost shortly before the process ends
        except subprocess.TimeoutExpired:
            raise error from error.__cause__
        raise JavaDied(
            "the Java process that runs Spark was killed; a machine that runs out of memory does that: report on a "
            "shorter period, or give it more"
            if status == -9
            else f"the Java process that runs Spark ended with {_ending(status)}; the log says why"
        ) from error


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"


def own_java() -> subprocess.Popen[bytes] | None:
    """The JVM process that this process started, if there is one."""
    core = sys.modules.get("pyspark.core.context")
    gateway = getattr(getattr(core, "SparkContext", None), "_gateway", None)
    return getattr(gateway, "proc", None)


def end_with_java() -> NoReturn:
    """End this process at once, and Java with it.

    By itself, Java ends at the end of its standard input, but only if it could write its port to a temporary file. If
    that file's folder was removed before, it would run forever.
    """
    if os.getpgrp() == os.getpid():  # the group has no process of others
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _stop(session: SparkSession) -> None:
    """Stop the session. Ignores errors if the JVM has ended, because they would hide the reason for its end."""
    try:
        session.stop()
    except Exception:
        java = own_java()
        if java is None or java.poll() is None:
            raise


def _driver_memory(environ: Mapping[str, str]) -> str:
    """Return the size that the user wants for Java's heap, empty for the default. Raises ValueError."""
    memory = environ.get(MEMORY_VARIABLE, "")
    if memory and not re.fullmatch(r"[1-9][0-9]*[mgt]b?", memory, re.IGNORECASE):
        raise ValueError(f"{MEMORY_VARIABLE}={memory} is not a size such as 4g or 1500m")
    return memory


def _check_master(master: str, environ: Mapping[str, str]) -> None:
    """Raise MasterUnreachable if the address is not in a format of Spark, or if none of the hosts in
    ``spark://host:port,host:port`` accepts a connection."""
    if not is_master(master):
        raise MasterUnreachable(f"SPARK_MASTER={master} is not a master's address; Spark knows {FORMS}")
    if master == "yarn" and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        raise MasterUnreachable("SPARK_MASTER=yarn needs HADOOP_CONF_DIR, the folder of the configuration of YARN")
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
