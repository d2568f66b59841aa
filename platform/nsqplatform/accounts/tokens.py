"""Bearer tokens: made by their owners for scripts, shown once, kept as hashes."""

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
"""What a token begins with, so that scanners for leaked secrets know one when they see it."""
USE_NOTED_EVERY = timedelta(minutes=1)
MOST = 50
"""Tokens of one account."""


class TokenRefused(Exception):
    """Says which token is meant and what is wrong with it, without telling whose it was."""


def create_token(
    *, user: User, name: str, role: Role | None = None, expires_at: datetime | None = None, replace: bool = True
) -> str:
    """Return a new token; it is shown this once. ``role`` None: its owner's, as it is now.

    A token of the same name is replaced, or, with ``replace`` false, refused.
    Raises ValidationError for a name that is empty, too long or taken, a role above the owner's, a time that is past.
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
            if user.api_tokens.count() >= MOST:
                raise ValidationError(f"an account has at most {MOST} tokens: revoke one first")
            token.save()
    except IntegrityError:
        raise ValidationError({"name": f"there is a token {token.name!r} already"}) from None
    return secret


def user_of_token(secret: str) -> User:
    """Return the account a token speaks for, with no more rights than the token has. Raises TokenRefused."""
    found = ApiToken.objects.select_related("user").filter(token_hash=hashed(secret)).first()
    if found is None:
        raise TokenRefused("this token is not known here: it was revoked, or never made")
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
    """The stored role, or the higher one that the settings give to this name where a proxy signs people in."""
    told = settings.NSQADMIN
    if told.believes_header:
        if user.username in told.admin_user:
            return Role.ADMIN
        if user.username in told.operator_user:
            return higher(Role(user.role), Role.OPERATOR)
    return Role(user.role)


def hashed(secret: str) -> str:
    """What is kept of a token or link. It is random and long, so a plain hash is as good as a slow one."""
    return hashlib.sha256(secret.encode()).hexdigest()
