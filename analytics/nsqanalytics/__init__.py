"""Reports on the cluster: the archive's schema and writer, the Spark jobs that read it, and the runner."""

from nsqanalytics.notebook import load

__all__ = ["load"]
