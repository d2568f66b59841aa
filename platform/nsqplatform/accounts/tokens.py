"""Bearer tokens for scripts. A token is shown once, and its hash is stored."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from nsqplatform.accounts.models import ApiToken, User
from nsqplatform.accounts.roles import Role, higher, lower

PREFIX = "nsq_"
"""Prefix of tokens, by which scanners for leaked secrets recognise them."""
USE_NOTED_EVERY = timedelta(minutes=1)
MAX_TOKENS = 50
"""Maximum number of tokens of an account."""


class TokenRefused(Exception):
    """The token is invalid. The message has the reason, without the owner."""


def create_token(
    *, user: User, name: str, role: Role | None = None, expires_at: datetime | None = None, replace: bool = True
) -> str:
    """Create a token and return it; it cannot be read again. ``role`` None: its owner's current role.

    An existing token of the same name is replaced if ``replace``. Raises ValidationError for a name that is empty, too
    long or (unless ``replace``) taken, a role above the owner's, a time in the past, or if the account has
    MAX_TOKENS tokens.
    """
    role = Role(user.role) if role is None else role
    if higher(role, Role(user.role)) != Role(user.role):
        raise ValidationError({"role": f"you are {user.role}; a token cannot be more"})
    if expires_at is not None and expires_at <= timezone.now():
        raise ValidationError({"expires_at": "this time is past"})
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken(user=user, name=name.strip(), role=role, token_hash=hashed(secret), expires_at=expires_at)
    token.clean_fields(exclude=["user"])
    try:
        with transaction.atomic():
            if replace:
                ApiToken.objects.filter(user=user, name=token.name).delete()
            if user.api_tokens.count() >= MAX_TOKENS:
                raise ValidationError(f"an account has at most {MAX_TOKENS} tokens: revoke one first")
            token.save()
    except IntegrityError:
        raise ValidationError({"name": f"there is a token {token.name!r} already"}) from None
    return secret


def bearer_token(authorization: str) -> str | None:
    """Return the token in an ``Authorization`` header; None for any other scheme."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def user_of_token(secret: str) -> User:
    """Return the token's account, with its role limited to the token's. Raises TokenRefused."""
    found = ApiToken.objects.select_related("user").filter(token_hash=hashed(secret)).first()
    if found is None:
        raise TokenRefused("unknown token: it was revoked or never existed")
    now = timezone.now()
    if found.expires_at is not None and found.expires_at <= now:
        raise TokenRefused(f"this token expired on {found.expires_at:%Y-%m-%d %H:%M} UTC")
    if not found.user.is_active:
        raise TokenRefused("the account of this token is closed")
    if found.last_used_at is None or now - found.last_used_at > USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=found.pk).update(last_used_at=now)
    user = found.user
    user.role = lower(Role(found.role), owners_role(user))
    user.via = f"token {found.name}"
    return user


def owners_role(user: User) -> Role:
    """The stored role, or the role that the settings give to this name for sign-in by header, if that is higher."""
    nsqadmin = settings.NSQADMIN
    if nsqadmin.believes_header:
        if user.username in nsqadmin.admin_user:
            return Role.ADMIN
        if user.username in nsqadmin.operator_user:
            return higher(Role(user.role), Role.OPERATOR)
    return Role(user.role)


def hashed(secret: str) -> str:
    """The stored hash of a token or link. The secret is random and long, so a fast hash is safe."""
    return hashlib.sha256(secret.encode()).hexdigest()
