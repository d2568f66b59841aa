"""What the cluster did: the archive's schema and writer, Spark jobs over it, and the runner."""

from nsqanalytics.notebook import load

__all__ = ["load"]
