"""Callers of every kind, with their credentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROLES = ["viewer", "operator", "limited", "admin"]
CALLERS = ["stranger", *ROLES, *(f"{role}'s token" for role in ROLES)]


class Caller:
    """A caller, with the headers that authenticate it."""

    def __init__(self, name: str, user: Any, headers: dict[str, str]) -> None:
        self.name = name
        self.user = user
        self.headers = headers
        self.token = "Authorization" in headers

    def may(self, permission: Any) -> bool:
        from nsqplatform.accounts.roles import allows

        return self.user is not None and allows(self.user.role, permission)

    @property
    def as_sent(self) -> dict[str, str]:
        """The headers by their names in requests."""
        return {name.replace("_", "-"): value for name, value in self.headers.items()}


def maker(account: Callable[..., Any]) -> Callable[[str], Caller]:
    """Makes a caller of CALLERS; ``limited`` is an operator of ``orders.*`` only."""
    from django.test import Client

    from nsqplatform.accounts.tokens import create_token

    def make(name: str) -> Caller:
        if name == "stranger":
            return Caller(name, None, {})
        role = name.partition("'")[0]
        user = account("operator" if role == "limited" else role, role)
        if role == "limited":
            user.topic_patterns = ["orders.*"]
            user.save()
        if name.endswith("token"):
            return Caller(name, user, {"Authorization": f"Bearer {create_token(user=user, name='script')}"})
        client = Client()
        client.force_login(user)
        secret = "a" * 32
        cookie = f"sessionid={client.cookies['sessionid'].value}; csrftoken={secret}"
        return Caller(name, user, {"Cookie": cookie, "X_CSRFToken": secret})

    return make
