"""Active silences. A silence has no name: all its values together identify it."""

from __future__ import annotations

from collections.abc import Mapping

from django.core.exceptions import PermissionDenied, ValidationError
from django.utils import timezone

from nsqplatform.accounts.people import checked_patterns
from nsqplatform.accounts.roles import Permission
from nsqplatform.alerts.models import Rule, Silence
from nsqplatform.alerts.services import check_silence, close_silence, limits_of, require_ending, save_silence
from nsqplatform.definitions.document import SilenceDefinition
from nsqplatform.definitions.sections.section import Section

PATTERNS = ("topic_pattern", "channel_pattern", "node_pattern", "objective_pattern")


class Silences(Section[SilenceDefinition]):
    name = "silences"
    reads = Permission.VIEW
    writes = Permission.ATTEND

    def stored(self) -> Mapping[str, SilenceDefinition]:
        active = Silence.objects.filter(ends_at__gt=timezone.now()).select_related("rule")
        found = {self.key(entry): entry for entry in map(entry_of, active)}
        return dict(sorted(found.items()))

    def key(self, entry: SilenceDefinition) -> str:
        """Such as ``rule Backlog, topic orders.* until 2026-12-24T08:00:00+00:00: stocktaking``."""
        what = {
            "rule": entry.rule,
            "topic": entry.topic_pattern,
            "channel": entry.channel_pattern,
            "node": entry.node_pattern,
            "objective": entry.objective_pattern,
            "within": " ".join(dict.fromkeys(entry.within)),
        }
        named = ", ".join(f"{kind} {value}" for kind, value in what.items() if value)
        return f"{named} until {entry.ends_at.isoformat()}: {entry.reason}"

    def normal(self, entry: SilenceDefinition, stored: SilenceDefinition | None) -> SilenceDefinition | None:
        """None for a silence that has ended."""
        within = list(dict.fromkeys(entry.within))
        return entry.model_copy(update={"within": within}) if entry.ends_at > timezone.now() else None

    def create(self, entry: SilenceDefinition) -> None:
        rule = Rule.objects.filter(name=entry.rule).first() if entry.rule else None
        if entry.rule and rule is None:
            raise ValidationError({"rule": f"there is no rule {entry.rule!r}"})
        limits = limits_of(self.by)
        if limits and entry.within != limits:
            raise PermissionDenied(f"within must be your topic patterns: {', '.join(limits)}")
        try:
            within = checked_patterns(entry.within)
        except ValidationError as error:
            raise ValidationError({"within": error.messages}) from None
        silence = Silence(
            rule=rule,
            within=within,
            reason=entry.reason,
            ends_at=entry.ends_at,
            created_by=self.by.username,
            **{field: getattr(entry, field) for field in PATTERNS},
        )
        check_silence(silence, self.by)
        save_silence(silence)

    def change(self, key: str, entry: SilenceDefinition) -> None:
        """Called only if two silences have the same key, because a node pattern contains a separator of the key."""
        raise ValidationError("another silence has the same description: end it first")

    def remove(self, key: str) -> None:
        for silence in Silence.objects.filter(ends_at__gt=timezone.now()).select_related("rule"):
            if self.key(entry_of(silence)) == key:
                require_ending(silence, self.by)
                close_silence(silence, self.by)


def entry_of(silence: Silence) -> SilenceDefinition:
    return SilenceDefinition(
        rule=silence.rule.name if silence.rule else "",
        within=silence.within,
        reason=silence.reason,
        ends_at=silence.ends_at,
        **{field: getattr(silence, field) for field in PATTERNS},
    )
