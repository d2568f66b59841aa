"""A browser's websocket that belongs to somebody who is signed in, and is closed when they no longer are."""

from __future__ import annotations

import json
import random
import time

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from accounts import audit
from accounts.header import user_of_scope
from accounts.models import User
from accounts.roles import Permission
from accounts.sessions import SessionStore
from accounts.tokens import TokenRefused, user_of_token

SIGN_IN_FIRST = 4401
"""Close code for a stranger; in the range that websockets leave to applications."""
SIGN_IN_CHECKED_EVERY_S = 30.0


class SignedInSocket(AsyncWebsocketConsumer):
    """Whose it is, is looked at when it opens and again every half minute that something is sent."""

    sign_in_check_due = 0.0

    async def signed_in_lately(self) -> bool:
        """Whether this is still somebody who may look; asks again when the last answer is old."""
        return time.monotonic() < self.sign_in_check_due or await self.still_signed_in()

    async def still_signed_in(self) -> bool:
        """Look again whether this is somebody who may look; close the socket if not."""
        # Hundreds that came in the same second, as after a restart, do not all ask the database before one message.
        self.sign_in_check_due = time.monotonic() + SIGN_IN_CHECKED_EVERY_S * random.uniform(0.5, 1)
        user = await self.user()
        if user is not None and self.may_stay(user):
            return True
        await database_sync_to_async(audit.refused)(
            user=user,
            subject=f"websocket {self.scope['path']}",
            detail="nobody signed in, or not any more",
            remote_address=(self.scope.get("client") or [""])[0],
            attempted=False,
        )
        await self.close(SIGN_IN_FIRST)
        return False

    def may_stay(self, user: User) -> bool:
        """What this socket asks of whose it is."""
        return user.may(Permission.VIEW)

    async def user(self) -> User | None:
        """The account a trusted proxy names, else the session's, as the database has both now, else that of a script's
        bearer token."""
        named = await database_sync_to_async(user_of_scope)(self.scope)
        if named is not None:
            return named
        user = await get_user({"session": SessionStore(self.scope["session"].session_key)})
        if isinstance(user, User):
            return user
        scheme, _, token = dict(self.scope["headers"]).get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            return await database_sync_to_async(user_of_token)(token)
        except TokenRefused:
            return None

    async def refuse(self, message: str) -> None:
        """Answer what made no sense; the socket stays open."""
        await self.send(text_data=json.dumps({"type": "error", "message": message}))
