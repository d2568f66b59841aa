"""A websocket for signed-in users, closed when they sign out or lose the permission to view."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any, Literal

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from typing_extensions import TypedDict

from nsqplatform.accounts import audit
from nsqplatform.accounts.credentials import user_of_scope
from nsqplatform.accounts.forwarded import client_of_scope
from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission, Rights
from nsqplatform.accounts.tokens import TokenRefused
from nsqplatform.cluster.live.subscribers import (
    ACCOUNT_CHECK_INTERVAL_S,
    PING_AFTER_S,
    PONG_WITHIN_S,
    subscribers,
)
from nsqwire.units import Seconds

SIGN_IN_FIRST = 4401
"""Close code for a client that is not signed in; in the range reserved for applications."""
NOT_ALLOWED = 4403
"""Close code for a client whose account may no longer receive what the socket sends."""
SIGN_IN_CHECKED_EVERY_S = 30.0
"""Maximum interval of the periodic check, which detects expired sessions and tokens: these are not broadcast."""
CHECKED_AGAIN_WITHIN_S = 2.5
"""When any account may have changed, every socket is checked within this time."""
REVOKED_WITHIN_S = max(
    PING_AFTER_S + PONG_WITHIN_S + CHECKED_AGAIN_WITHIN_S,  # Redis is lost at the same moment
    ACCOUNT_CHECK_INTERVAL_S + CHECKED_AGAIN_WITHIN_S,  # there was no Redis before
)
"""The longest time until a socket is checked after its account changed, with and without Redis."""


class ErrorMessage(TypedDict):
    """A message of the browser cannot be executed; ``message`` is the reason."""

    type: Literal["error"]
    message: str


class AccountMessage(TypedDict):
    """The role or topics of the socket's account have changed, so the page may have to offer other actions."""

    type: Literal["account"]


class SignedInSocket(AsyncWebsocketConsumer):
    """Checks the user when the socket opens, whenever the account or its credentials change (cluster.live.revocation),
    and, while the socket sends messages, at least every SIGN_IN_CHECKED_EVERY_S seconds."""

    sign_in_check_due: Seconds = 0.0
    user_id: int | None = None
    """The account, once it is known."""
    rights: Rights | None = None
    """The account's rights at the last check."""
    refused = False
    rechecking: asyncio.Task[bool] | None = None
    check_planned: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        subscribers().listen_to_accounts(self._account_changed)  # before the check: no change in between is missed
        try:
            await super().__call__(scope, receive, send)
        finally:  # after an error in a handler, too, when no "websocket.disconnect" comes
            subscribers().ignore_accounts(self._account_changed)
            if self.check_planned is not None:
                self.check_planned.cancel()

    def _account_changed(self, user_id: int | None) -> None:
        if user_id is None:
            if self.check_planned is None:  # random, so that hundreds of sockets do not query the database at once
                within_s = CHECKED_AGAIN_WITHIN_S * random.uniform(0.5, 1)
                self.check_planned = asyncio.get_running_loop().call_later(within_s, self._check_soon)
        elif self.user_id in (None, user_id):
            self._check_soon()

    def _check_soon(self) -> None:
        if self.check_planned is not None:
            self.check_planned.cancel()
            self.check_planned = None
        self.sign_in_check_due = 0.0  # until a check has succeeded
        self.rechecking = asyncio.create_task(self.check_sign_in())

    async def is_signed_in(self) -> bool:
        """Whether the user may still view; checked again when the last check is old."""
        if self.refused:
            return False
        return time.monotonic() < self.sign_in_check_due or await self.check_sign_in()

    async def check_sign_in(self) -> bool:
        """Check the user now; close the socket if they may not view."""
        user = await self.user()
        # Random, so that hundreds that connected in the same second do not all query the database at once.
        self.sign_in_check_due = time.monotonic() + SIGN_IN_CHECKED_EVERY_S * random.uniform(0.5, 1)
        if user is not None and self.may_stay(user):
            self.user_id = user.pk
            await self._note_rights(user.rights)
            return not self.refused
        if self.refused:
            return False
        self.refused = True
        await database_sync_to_async(audit.refused)(
            user=user,
            subject=f"websocket {self.scope['path']}",
            detail="not signed in, or the session has ended" if user is None else "the role no longer allows it",
            remote_address=client_of_scope(self.scope),
            attempted=False,
        )
        await self.close(SIGN_IN_FIRST if user is None else NOT_ALLOWED)
        return False

    async def _note_rights(self, rights: Rights) -> None:
        """Notify the browser if the rights of its account have changed since the last check."""
        before, self.rights = self.rights, rights
        if before not in (None, rights) and not self.refused:
            message: AccountMessage = {"type": "account"}
            await self.send(text_data=json.dumps(message))

    def may_stay(self, user: User) -> bool:
        """Whether ``user`` has the permission that this socket needs."""
        return user.may(Permission.VIEW)

    async def user(self) -> User | None:
        """The account of the connection's credentials, as it is now."""
        try:
            return await database_sync_to_async(user_of_scope)(self.scope)
        except TokenRefused:
            return None

    async def refuse(self, message: str) -> None:
        """Send an error message; the socket stays open."""
        refusal: ErrorMessage = {"type": "error", "message": message}
        await self.send(text_data=json.dumps(refusal))
