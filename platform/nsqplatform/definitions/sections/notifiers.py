"""Notifiers, by name."""

from __future__ import annotations

from collections.abc import Mapping

from nsqplatform.accounts.roles import Permission
from nsqplatform.alerts.models import Notifier
from nsqplatform.alerts.schemas import NotifierIn
from nsqplatform.alerts.services import broadcast_after_commit, save_notifier
from nsqplatform.definitions.secrets import masked, unmasked
from nsqplatform.definitions.sections.section import Section


class Notifiers(Section[NotifierIn]):
    name = "notifiers"
    reads = Permission.VIEW
    writes = Permission.ALERT

    def stored(self) -> Mapping[str, NotifierIn]:
        found = sorted(Notifier.objects.all(), key=lambda notifier: notifier.name)
        return {notifier.name: NotifierIn.model_validate(values_of(notifier)) for notifier in found}

    def key(self, entry: NotifierIn) -> str:
        return entry.name.strip()

    def normal(self, entry: NotifierIn, stored: NotifierIn | None) -> NotifierIn:
        url = unmasked(entry.url, field="url", stored=stored.url if stored else "")
        return entry.model_copy(update={"name": self.key(entry), "url": url})

    def create(self, entry: NotifierIn) -> None:
        save_notifier(Notifier(**entry.dict(), created_by=self.by.username))
        broadcast_after_commit()

    def change(self, key: str, entry: NotifierIn) -> None:
        notifier = Notifier.objects.get(name=key)
        for field, value in entry.dict().items():
            setattr(notifier, field, value)
        save_notifier(notifier, only=list(NotifierIn.model_fields))
        broadcast_after_commit()

    def remove(self, key: str) -> None:
        Notifier.objects.filter(name=key).delete()
        broadcast_after_commit()

    def secret(self, entry: NotifierIn) -> Mapping[str, str]:
        return {"url": masked(entry.url)}

    def without_secrets(self, entry: NotifierIn) -> NotifierIn:
        return entry.model_copy(update={"url": masked(entry.url)})


def values_of(notifier: Notifier) -> dict[str, object]:
    return {field: getattr(notifier, field) for field in NotifierIn.model_fields}
