"""Shared views, by name. Views that are not shared belong to their owners alone, and are not exported."""

from __future__ import annotations

from collections.abc import Mapping

from django.core.exceptions import PermissionDenied

from nsqplatform.accounts.roles import Permission
from nsqplatform.definitions.document import ViewDefinition
from nsqplatform.definitions.sections.section import Section
from nsqplatform.saved_views.models import SavedView
from nsqplatform.saved_views.schemas import may_change
from nsqplatform.saved_views.services import save_view


class Views(Section[ViewDefinition]):
    name = "views"
    reads = Permission.VIEW
    writes = Permission.SHARE

    def stored(self) -> Mapping[str, ViewDefinition]:
        found = sorted(SavedView.objects.filter(is_shared=True), key=lambda view: view.name)
        return {view.name: ViewDefinition(name=view.name, address=view.address) for view in found}

    def key(self, entry: ViewDefinition) -> str:
        return entry.name.strip()

    def normal(self, entry: ViewDefinition, stored: ViewDefinition | None) -> ViewDefinition:
        return entry.model_copy(update={"name": self.key(entry)})

    def create(self, entry: ViewDefinition) -> None:
        owner = self.by if self.by.pk else None
        save_view(SavedView(owner=owner, name=entry.name, address=entry.address, is_shared=True))

    def change(self, key: str, entry: ViewDefinition) -> None:
        view = self._changeable(key)
        view.address = entry.address
        save_view(view)

    def remove(self, key: str) -> None:
        self._changeable(key).delete()

    def _changeable(self, name: str) -> SavedView:
        view = SavedView.objects.get(name=name, is_shared=True)
        if not may_change(view, self.by):
            raise PermissionDenied("only its owner and admins may change a shared view")
        return view
