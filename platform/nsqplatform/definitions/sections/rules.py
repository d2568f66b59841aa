"""Alert rules, by name, with the names of their notifiers."""

from __future__ import annotations

from collections.abc import Mapping

from nsqplatform.accounts.roles import Permission
from nsqplatform.alerts.models import Rule
from nsqplatform.alerts.schemas import RuleIn
from nsqplatform.alerts.services import broadcast_after_commit, remove_rule, save_rule, unsaved_rule
from nsqplatform.definitions.sections.section import Section


class Rules(Section[RuleIn]):
    name = "rules"
    reads = Permission.VIEW
    writes = Permission.ALERT

    def stored(self) -> Mapping[str, RuleIn]:
        found = sorted(Rule.objects.prefetch_related("notifiers"), key=lambda rule: rule.name)
        return {rule.name: entry_of(rule, sorted(each.name for each in rule.notifiers.all())) for rule in found}

    def key(self, entry: RuleIn) -> str:
        return entry.name.strip()

    def normal(self, entry: RuleIn, stored: RuleIn | None) -> RuleIn:
        return entry_of(unsaved_rule(entry), sorted(set(entry.notifiers)))

    def create(self, entry: RuleIn) -> None:
        rule = unsaved_rule(entry)
        rule.created_by = self.by.username
        save_rule(rule, entry.notifiers)
        broadcast_after_commit()

    def change(self, key: str, entry: RuleIn) -> None:
        rule = Rule.objects.get(name=key)
        for field, value in entry.dict(exclude={"notifiers"}).items():
            setattr(rule, field, value)
        save_rule(rule, entry.notifiers)
        broadcast_after_commit()

    def remove(self, key: str) -> None:
        remove_rule(Rule.objects.get(name=key), self.by)


def entry_of(rule: Rule, notifiers: list[str]) -> RuleIn:
    fields = {field: getattr(rule, field) for field in RuleIn.model_fields if field != "notifiers"}
    return RuleIn.model_validate(fields | {"notifiers": notifiers})
