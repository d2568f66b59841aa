"""A section of the database: reads, creates, changes and removes the definitions of one kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Generic, TypeVar

from django.core.exceptions import NON_FIELD_ERRORS, ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.http import Http404
from pydantic import BaseModel

from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.definitions.changes import Change, Verb, differences
from nsqplatform.definitions.errors import FieldFault

Entry = TypeVar("Entry", bound=BaseModel)


class Section(ABC, Generic[Entry]):
    """The definitions of one kind. ``by`` is the user who exports or imports them."""

    name: ClassVar[str]
    reads: ClassVar[Permission]
    """The permission to see the section."""
    writes: ClassVar[Permission]

    def __init__(self, by: User) -> None:
        self.by = by
        self.changes: list[Change] = []
        self.unchanged = 0
        self.faults: list[FieldFault] = []
        self.denied: list[FieldFault] = []

    # ---- defined by each section

    @abstractmethod
    def stored(self) -> Mapping[str, Entry]:
        """The definitions of the database by their keys, in the order of the file."""

    @abstractmethod
    def key(self, entry: Entry) -> str:
        """The entry's key, which no other entry of its kind has."""

    @abstractmethod
    def normal(self, entry: Entry, stored: Entry | None) -> Entry | None:
        """The entry as it would be stored; None if there is nothing to store.

        Raises ValidationError naming the field."""

    @abstractmethod
    def create(self, entry: Entry) -> None:
        """Raises PermissionDenied, and ValidationError naming the field."""

    @abstractmethod
    def change(self, key: str, entry: Entry) -> None:
        """Raises PermissionDenied, and ValidationError naming the field."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Raises PermissionDenied and ValidationError."""

    def is_removable(self, entry: Entry) -> bool:
        return True

    def secret(self, entry: Entry) -> Mapping[str, str]:
        """The fields whose values must not be shown, with the text that replaces each."""
        return {}

    def without_secrets(self, entry: Entry) -> Entry:
        return entry

    def ordered(self, entries: Iterable[tuple[int, Entry]]) -> Iterable[tuple[int, Entry]]:
        """The entries in the order in which they must be stored."""
        return entries

    # ---- common to all sections

    def exported(self, *, secrets: bool) -> list[Entry]:
        return [entry if secrets else self.without_secrets(entry) for entry in self.stored().values()]

    def store(self, entries: Sequence[Entry]) -> None:
        """Create and change the entries that differ, in a transaction of the caller. Refusals are added to ``faults``
        and ``denied``."""
        stored = self.stored()
        seen: set[str] = set()
        for index, entry in self.ordered(enumerate(entries)):
            key, path = self.key(entry), f"{self.name}.{index}"
            if key in seen:
                self.faults.append(FieldFault(path, f"{key} is defined twice"))
                continue
            seen.add(key)
            self._attempt(path, key, partial(self._store, path, key, entry, stored.get(key)))

    def prune(self, entries: Sequence[Entry], *, remove: bool) -> None:
        """Remove the entries that the file lacks, in a transaction of the caller. Without ``remove``, only list them in
        ``changes``."""
        kept = {self.key(entry) for entry in entries}
        for key, entry in self.stored().items():
            if key in kept or not self.is_removable(entry):
                continue
            change = Change(section=self.name, name=key, verb="remove" if remove else "keep")
            if remove:
                self._attempt(self.name, key, partial(self._remove, key))
            self.changes.append(change)

    def _store(self, path: str, key: str, entry: Entry, stored: Entry | None) -> None:
        wanted = self.normal(entry, stored)
        if wanted is None or wanted == stored:
            self.unchanged += 1
            return
        require(self.by, self.writes)
        if stored is None:
            self.create(wanted)
        else:
            self.change(key, wanted)
        fields = differences(stored, wanted, self.secret(wanted))
        verb: Verb = "create" if stored is None else "change"
        self.changes.append(Change(section=self.name, name=key, verb=verb, path=path, fields=fields))

    def _remove(self, key: str) -> None:
        require(self.by, self.writes)
        self.remove(key)

    def _attempt(self, path: str, name: str, work: Callable[[], None]) -> None:
        """Do the work in a savepoint. If it is refused, record the reason."""
        try:
            with transaction.atomic():
                work()
        except PermissionDenied as error:
            self.denied.append(FieldFault(path, f"{name}: {error}"))
        except Http404 as error:
            self.faults.append(FieldFault(path, str(error)))
        except (ObjectDoesNotExist, IntegrityError):
            self.faults.append(FieldFault(path, f"{name} was created or removed meanwhile; try again"))
        except ValidationError as error:
            self.faults += faults_of(error, path, name)


def faults_of(error: ValidationError, path: str, name: str) -> list[FieldFault]:
    """The error's fields below ``path``, each with the entry's name."""
    if not hasattr(error, "error_dict"):
        return [FieldFault(path, f"{name}: {text}") for text in error.messages]
    return [
        FieldFault(path if field == NON_FIELD_ERRORS else f"{path}.{field}", f"{name}: {text}")
        for field, texts in error.message_dict.items()
        for text in texts
    ]
