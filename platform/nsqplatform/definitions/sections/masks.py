"""Masks of messages. A mask has no name: the masks of one topic pattern and role are one entry, with all their
paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster.messages.masks import checked_mask
from nsqplatform.cluster.models import Mask
from nsqplatform.definitions.document import MaskDefinition
from nsqplatform.definitions.sections.section import Section


class Masks(Section[MaskDefinition]):
    name = "masks"
    reads = Permission.VIEW
    writes = Permission.MASK

    def stored(self) -> Mapping[str, MaskDefinition]:
        found: dict[str, MaskDefinition] = {}
        for mask in Mask.objects.order_by("topic_pattern", "visible_to", "id"):
            entry = MaskDefinition.model_validate({name: getattr(mask, name) for name in MaskDefinition.model_fields})
            before = found.get(self.key(entry))
            paths = distinct([*(before.paths if before else []), *entry.paths])
            found[self.key(entry)] = entry.model_copy(update={"paths": paths})
        return dict(sorted(found.items()))

    def key(self, entry: MaskDefinition) -> str:
        """Such as ``payments.*, visible to admin``."""
        return f"{entry.topic_pattern}, visible to {entry.visible_to}"

    def normal(self, entry: MaskDefinition, stored: MaskDefinition | None) -> MaskDefinition:
        wanted = entry.model_copy(update={"paths": distinct(entry.paths)})
        checked_mask(Mask(**wanted.dict()))
        return wanted

    def create(self, entry: MaskDefinition) -> None:
        Mask.objects.create(created_by=self.by.username, **entry.dict())

    def change(self, key: str, entry: MaskDefinition) -> None:
        """Set all paths on the first mask of this pattern and role, and delete its other masks."""
        same = Mask.objects.filter(topic_pattern=entry.topic_pattern, visible_to=entry.visible_to).order_by("id")
        kept = same.first()
        if kept is None:
            raise Mask.DoesNotExist
        kept.paths = entry.paths
        kept.save()
        same.exclude(pk=kept.pk).delete()

    def remove(self, key: str) -> None:
        entry = self.stored()[key]
        Mask.objects.filter(topic_pattern=entry.topic_pattern, visible_to=entry.visible_to).delete()


def distinct(paths: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(paths))
