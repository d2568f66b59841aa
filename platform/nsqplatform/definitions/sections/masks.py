"""Masks of messages. A mask has no name: the masks of one topic pattern and role are one entry, with all their
paths and the headers that all of them leave visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster.messages.masks import checked_mask, headers_of_all
from nsqplatform.cluster.models import Mask
from nsqplatform.definitions.document import MaskDefinition
from nsqplatform.definitions.sections.section import Section


class Masks(Section[MaskDefinition]):
    name = "masks"
    reads = Permission.VIEW
    writes = Permission.MASK

    def stored(self) -> Mapping[str, MaskDefinition]:
        found: dict[str, MaskDefinition] = {}
        same: dict[str, list[Mask]] = {}
        for mask in Mask.objects.order_by("topic_pattern", "visible_to", "id"):
            entry = MaskDefinition.model_validate({name: getattr(mask, name) for name in MaskDefinition.model_fields})
            masks = same.setdefault(self.key(entry), [])
            masks.append(mask)
            paths = distinct([path for each in masks for path in each.paths])
            headers = distinct(headers_of_all(masks))
            found[self.key(entry)] = entry.model_copy(update={"paths": paths, "visible_headers": headers})
        return dict(sorted(found.items()))

    def key(self, entry: MaskDefinition) -> str:
        """Such as ``payments.*, visible to admin``."""
        return f"{entry.topic_pattern}, visible to {entry.visible_to}"

    def normal(self, entry: MaskDefinition, stored: MaskDefinition | None) -> MaskDefinition:
        headers = distinct(entry.visible_headers)
        wanted = entry.model_copy(update={"paths": distinct(entry.paths), "visible_headers": headers})
        checked_mask(Mask(**wanted.dict()))
        return wanted

    def create(self, entry: MaskDefinition) -> None:
        Mask.objects.create(created_by=self.by.username, **entry.dict())

    def change(self, key: str, entry: MaskDefinition) -> None:
        """Set all paths and headers on the first mask of this pattern and role, and delete its other masks."""
        same = Mask.objects.filter(topic_pattern=entry.topic_pattern, visible_to=entry.visible_to).order_by("id")
        kept = same.first()
        if kept is None:
            raise Mask.DoesNotExist
        kept.paths, kept.visible_headers = entry.paths, entry.visible_headers
        kept.save()
        same.exclude(pk=kept.pk).delete()

    def remove(self, key: str) -> None:
        entry = self.stored()[key]
        Mask.objects.filter(topic_pattern=entry.topic_pattern, visible_to=entry.visible_to).delete()


def distinct(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(texts))
