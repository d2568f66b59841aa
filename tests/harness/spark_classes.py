"""The archive of Spark's classes that processes with a home folder of their own share with all others."""

from __future__ import annotations

import os

from nsqanalytics.class_archive import class_archive
from nsqanalytics.java import find_java


def spark_classes() -> dict[str, str]:
    """The environment variable with the folder of this machine's archive (nsqanalytics/class_archive.py).

    Without it, each such process loads ten thousand classes from jars, and then writes an archive in its home folder.
    """
    found = class_archive(find_java(os.environ), os.environ)
    return {"NSQ_SPARK_CLASSES": "" if found is None else str(found.path.parent)}
