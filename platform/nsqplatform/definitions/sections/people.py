"""Accounts by user name: role, topic patterns and whether they are open, without passwords, links and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nsqplatform.accounts.models import User
from nsqplatform.accounts.people import checked_patterns, checked_roles, save_person, stored_roles
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.accounts.services import create_account
from nsqplatform.definitions.document import PersonDefinition
from nsqplatform.definitions.sections.section import Section


class People(Section[PersonDefinition]):
    """Accounts are never deleted: pruning closes them. A new one has no password; an admin sends its sign-in link."""

    name = "people"
    reads = Permission.ADMINISTER
    writes = Permission.ADMINISTER

    def stored(self) -> Mapping[str, PersonDefinition]:
        found = sorted(User.objects.all(), key=lambda user: user.username)
        return {user.username: entry_of(user) for user in found}

    def key(self, entry: PersonDefinition) -> str:
        return User.normalize_username(entry.username)

    def normal(self, entry: PersonDefinition, stored: PersonDefinition | None) -> PersonDefinition:
        patterns = checked_patterns(entry.topic_patterns)
        checked_roles(stored_roles(entry.cluster_roles))
        return entry.model_copy(update={"username": self.key(entry), "topic_patterns": patterns})

    def create(self, entry: PersonDefinition) -> None:
        user = create_account(
            username=entry.username,
            role=Role(entry.role),
            topic_patterns=entry.topic_patterns,
            everywhere=entry.everywhere,
            cluster_roles=checked_roles(stored_roles(entry.cluster_roles)),
        )
        if not entry.is_active:
            user.is_active = False
            save_person(user, by=self.by)

    def change(self, key: str, entry: PersonDefinition) -> None:
        user = User.objects.get(username=key)
        user.role, user.topic_patterns, user.is_active = entry.role, entry.topic_patterns, entry.is_active
        user.everywhere, user.cluster_roles = entry.everywhere, checked_roles(stored_roles(entry.cluster_roles))
        save_person(user, by=self.by)

    def remove(self, key: str) -> None:
        user = User.objects.get(username=key)
        user.is_active = False
        save_person(user, by=self.by)

    def is_removable(self, entry: PersonDefinition) -> bool:
        return entry.is_active

    def ordered(self, entries: Iterable[tuple[int, PersonDefinition]]) -> Iterable[tuple[int, PersonDefinition]]:
        """Active admins first, because at least one admin must exist at all times."""
        return sorted(entries, key=lambda each: not (each[1].role == Role.ADMIN.value and each[1].is_active))


def entry_of(user: User) -> PersonDefinition:
    return PersonDefinition.model_validate({field: getattr(user, field) for field in PersonDefinition.model_fields})
