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
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.tokens import TokenRefused
from nsqplatform.cluster.live.subscribers import subscribers

SIGN_IN_FIRST = 4401
"""Close code for a client that is not signed in; in the range reserved for applications."""
SIGN_IN_CHECKED_EVERY_S = 30.0
"""Maximum interval of the periodic check, which finds what is not announced: expired sessions and tokens."""
CHECKED_AGAIN_WITHIN_S = 4.0
"""After a lost subscription to Redis, every socket is checked within this time."""


class ErrorMessage(TypedDict):
    """A message that the browser sent cannot be executed."""

    type: Literal["error"]
    message: str


class SignedInSocket(AsyncWebsocketConsumer):
    """Checks the user when the socket opens, whenever the account or its credentials change (cluster.live.revocation),
    and, while the socket sends messages, at least every SIGN_IN_CHECKED_EVERY_S seconds."""

    sign_in_check_due = 0.0
    user_id: int | None = None
    """The account, once it is known."""
    refused = False
    rechecking: asyncio.Task[bool] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        subscribers.listen_to_accounts(self._account_changed)  # before the check: no change in between is missed
        try:
            await super().__call__(scope, receive, send)
        finally:  # after an error in a handler, too, when no "websocket.disconnect" comes
            subscribers.ignore_accounts(self._account_changed)

    def _account_changed(self, user_id: int | None) -> None:
        if user_id is None:
            within_s = random.uniform(0, CHECKED_AGAIN_WITHIN_S)
            self.sign_in_check_due = min(self.sign_in_check_due, time.monotonic() + within_s)
        elif self.user_id in (None, user_id):
            self.sign_in_check_due = 0.0  # until a check has succeeded
            self.rechecking = asyncio.create_task(self.still_signed_in())

    async def signed_in_lately(self) -> bool:
        """Whether the user may still view; checked again when the last check is old."""
        if self.refused:
            return False
        return time.monotonic() < self.sign_in_check_due or await self.still_signed_in()

    async def still_signed_in(self) -> bool:
        """Check the user now; close the socket if they may not view."""
        user = await self.user()
        # Random, so that hundreds that connected in the same second do not all query the database at once.
        self.sign_in_check_due = time.monotonic() + SIGN_IN_CHECKED_EVERY_S * random.uniform(0.5, 1)
        if user is not None and self.may_stay(user):
            self.user_id = user.pk
            return not self.refused
        if self.refused:
            return False
        self.refused = True
        await database_sync_to_async(audit.refused)(
            user=user,
            subject=f"websocket {self.scope['path']}",
            detail="not signed in, or the session has ended",
            remote_address=client_of_scope(self.scope),
            attempted=False,
        )
        await self.close(SIGN_IN_FIRST)
        return False

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
