"""Schedules of reports, by name."""

from __future__ import annotations

from collections.abc import Mapping

from nsqplatform.accounts.roles import Permission
from nsqplatform.definitions.secrets import masked, unmasked
from nsqplatform.definitions.sections.section import Section
from nsqplatform.reports.models import Report
from nsqplatform.reports.schemas import ScheduleIn
from nsqplatform.reports.services import checked_schedule, remove_schedule, save_schedule


class Schedules(Section[ScheduleIn]):
    name = "schedules"
    reads = Permission.VIEW
    writes = Permission.SCHEDULE

    def stored(self) -> Mapping[str, ScheduleIn]:
        found = sorted(Report.objects.all(), key=lambda report: report.name)
        return {report.name: entry_of(report) for report in found}

    def key(self, entry: ScheduleIn) -> str:
        return entry.name.strip()

    def normal(self, entry: ScheduleIn, stored: ScheduleIn | None) -> ScheduleIn:
        url = unmasked(entry.notify_webhook, field="notify_webhook", stored=stored.notify_webhook if stored else "")
        return entry_of(checked_schedule(Report(**entry.dict() | {"notify_webhook": url})))

    def create(self, entry: ScheduleIn) -> None:
        save_schedule(Report(created_by=self.by.username, **entry.dict()))

    def change(self, key: str, entry: ScheduleIn) -> None:
        report = Report.objects.select_related("periodic_task").get(name=key)
        for field, value in entry.dict().items():
            setattr(report, field, value)
        save_schedule(report)

    def remove(self, key: str) -> None:
        remove_schedule(Report.objects.select_related("periodic_task").get(name=key))

    def secret(self, entry: ScheduleIn) -> Mapping[str, str]:
        return {"notify_webhook": masked(entry.notify_webhook)}

    def without_secrets(self, entry: ScheduleIn) -> ScheduleIn:
        return entry.model_copy(update={"notify_webhook": masked(entry.notify_webhook)})


def entry_of(report: Report) -> ScheduleIn:
    values = {field: getattr(report, field) for field in ScheduleIn.model_fields}
    return ScheduleIn.model_validate(values | {"parameters": dict(sorted(report.parameters.items()))})
