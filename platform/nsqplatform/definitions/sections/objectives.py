"""Objectives, by name, without their counts."""

from __future__ import annotations

from collections.abc import Mapping

from nsqplatform.accounts.roles import Permission
from nsqplatform.definitions.sections.section import Section
from nsqplatform.objectives import services
from nsqplatform.objectives.models import Objective
from nsqplatform.objectives.schemas import ObjectiveIn


class Objectives(Section[ObjectiveIn]):
    name = "objectives"
    reads = Permission.VIEW
    writes = Permission.ALERT

    def stored(self) -> Mapping[str, ObjectiveIn]:
        found = sorted(Objective.objects.all(), key=lambda objective: objective.name)
        return {objective.name: entry_of(objective) for objective in found}

    def key(self, entry: ObjectiveIn) -> str:
        return entry.name.strip()

    def normal(self, entry: ObjectiveIn, stored: ObjectiveIn | None) -> ObjectiveIn:
        return entry_of(services.checked(Objective(**entry.dict())))

    def create(self, entry: ObjectiveIn) -> None:
        services.save(services.checked(Objective(**entry.dict(), created_by=self.by.username)))

    def change(self, key: str, entry: ObjectiveIn) -> None:
        objective = Objective.objects.select_for_update().get(name=key)
        services.change(objective, entry.dict())

    def remove(self, key: str) -> None:
        Objective.objects.select_for_update().get(name=key).delete()


def entry_of(objective: Objective) -> ObjectiveIn:
    return ObjectiveIn.model_validate({field: getattr(objective, field) for field in ObjectiveIn.model_fields})
