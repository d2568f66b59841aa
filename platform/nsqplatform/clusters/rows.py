"""Rows of the database that belong to a cluster. Queries select those of the current cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, TypeVar

from django.db import models

from nsqplatform.clusters import current

M = TypeVar("M", bound=models.Model)


class RowsOfCluster(models.Manager[M]):
    """Selects the rows of the current cluster."""

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().filter(cluster=current.name())


class ClusterRow(models.Model):
    """A row that belongs to the cluster in which it was created."""

    cluster = models.CharField(max_length=32, default=current.name, editable=False, db_index=True)

    objects: ClassVar = RowsOfCluster()
    everywhere: ClassVar = models.Manager()
    """The rows of all clusters, for workers."""

    class Meta:
        abstract = True


@contextmanager
def in_cluster_of(model: type[ClusterRow], pk: int) -> Iterator[bool]:
    """Set the current cluster to that of a row. Yields False, without setting it, if there is no such row, or if its
    cluster is no longer declared."""
    cluster = model.everywhere.filter(pk=pk, cluster__in=current.names()).values_list("cluster", flat=True).first()
    if cluster is None:
        yield False
        return
    with current.entered(cluster):
        yield True
