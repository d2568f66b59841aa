"""Keeps a table's metadata small: joins manifests, and removes snapshots whose files compaction has removed."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Table

MANY_MANIFESTS = 50
"""Each commit adds one or two; a reader opens all of them."""


def join_manifests(table: Table) -> None:
    """Write the entries of all manifests into one, if there are many. Entries of removed files are left out."""
    snapshot = table.current_snapshot()
    if snapshot is not None and len(snapshot.manifests(table.io)) >= MANY_MANIFESTS:
        with table.transaction() as transaction, transaction.update_snapshot().merge_append():
            pass


def expire(table: Table, before: datetime) -> int:
    """Remove the snapshots that another one replaced before this time, with their files; return their number.

    The data files stay: compaction and retention remove them.
    """
    listed = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    limit = before.timestamp() * 1000
    old = [each for each, later in pairwise(listed) if later.timestamp_ms < limit]
    protected = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [each for each in old if each.snapshot_id not in protected]
    if not old:
        return 0
    kept = [each for each in listed if each not in old]
    unused = {each.manifest_list for each in old}
    try:
        unused |= {manifest.manifest_path for each in old for manifest in each.manifests(table.io)}
    except OSError:  # an earlier run was killed after it had removed a part
        pass
    used = {manifest.manifest_path for each in kept for manifest in each.manifests(table.io)}
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    for path in unused - used:
        try:
            table.io.delete(path)
        except OSError:
            continue
    return len(old)


KEPT = timedelta(hours=2)
"""How long a snapshot stays after another one has replaced it. Compaction keeps replaced files as long."""
