"""A websocket for signed-in users, closed when they sign out or lose the permission to view."""

from __future__ import annotations

import json
import random
import time

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from nsqplatform.accounts import audit
from nsqplatform.accounts.header import user_of_scope
from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.sessions import SessionStore
from nsqplatform.accounts.tokens import TokenRefused, bearer_token, user_of_token

SIGN_IN_FIRST = 4401
"""Close code for a client that is not signed in; in the range reserved for applications."""
SIGN_IN_CHECKED_EVERY_S = 30.0


class SignedInSocket(AsyncWebsocketConsumer):
    """Checks the user when the socket opens and, while it sends messages, again at least every SIGN_IN_CHECKED_EVERY_S
    seconds."""

    sign_in_check_due = 0.0

    async def signed_in_lately(self) -> bool:
        """Whether the user may still view; checked again when the last check is old."""
        return time.monotonic() < self.sign_in_check_due or await self.still_signed_in()

    async def still_signed_in(self) -> bool:
        """Check the user now; close the socket if they may not view."""
        # Random, so that hundreds that connected in the same second do not all query the database at once.
        self.sign_in_check_due = time.monotonic() + SIGN_IN_CHECKED_EVERY_S * random.uniform(0.5, 1)
        user = await self.user()
        if user is not None and self.may_stay(user):
            return True
        await database_sync_to_async(audit.refused)(
            user=user,
            subject=f"websocket {self.scope['path']}",
            detail="not signed in, or the session has ended",
            remote_address=(self.scope.get("client") or [""])[0],
            attempted=False,
        )
        await self.close(SIGN_IN_FIRST)
        return False

    def may_stay(self, user: User) -> bool:
        """Whether ``user`` has the permission that this socket needs."""
        return user.may(Permission.VIEW)

    async def user(self) -> User | None:
        """The account of the bearer token, else the one that a trusted proxy names, else that of the session.

        With a token that is refused there is none: the cookie beside it may be another user's.
        """
        token = bearer_token(dict(self.scope["headers"]).get(b"authorization", b"").decode("latin-1"))
        if token is not None:
            try:
                return await database_sync_to_async(user_of_token)(token)
            except TokenRefused:
                return None
        named = await database_sync_to_async(user_of_scope)(self.scope)
        if named is not None:
            return named
        user = await get_user({"session": SessionStore(self.scope["session"].session_key)})
        return user if isinstance(user, User) else None

    async def refuse(self, message: str) -> None:
        """Send an error message; the socket stays open."""
        await self.send(text_data=json.dumps({"type": "error", "message": message}))
