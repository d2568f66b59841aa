"""The size of the archive over HTTP."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.clusters import current
from nsqplatform.reports import archive_size
from nsqplatform.reports.api import REFUSALS
from nsqplatform.reports.schemas import ArchiveOut
from nsqplatform.reports.tasks import list_archive

router = Router(tags=["reports"])


@router.get("archive", auth=needs(Permission.VIEW), response={200: ArchiveOut, **REFUSALS})
def archive(request: HttpRequest) -> ArchiveOut:
    """How large the archive is, how it grows, and what of it is registered in an Iceberg catalog.

    A task lists the archive. Until it has done so for the first time, ``listed_at`` is null: ask again.
    """
    found, is_wanted = archive_size.latest()
    if is_wanted:
        list_archive.delay(current.name())
    return found or archive_size.unlisted()
