"""Bearer tokens for scripts. A token is shown once, and its hash is stored."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from nsqplatform.accounts.header import has_given_role, role_of_name
from nsqplatform.accounts.models import ApiToken, User
from nsqplatform.accounts.roles import Role, higher
from nsqplatform.clusters import current

PREFIX = "nsq_"
"""Prefix of tokens, by which scanners for leaked secrets recognise them."""
USED_INTERVAL = timedelta(minutes=1)
"""``last_used_at`` is written at most this often."""
MAX_TOKENS = 50
"""Maximum number of tokens of an account."""


class TokenRefused(Exception):
    """The token is invalid. The message has the reason, without the owner."""


def create_token(
    *,
    user: User,
    name: str,
    role: Role | None = None,
    cluster: str = "",
    expires_at: datetime | None = None,
    replace: bool = True,
) -> str:
    """Create a token and return it; it cannot be read again. ``role`` None: its owner's highest current role.
    ``cluster``: the only one in which it is valid; empty: all of its owner's.

    An existing token of the same name is replaced if ``replace``. Raises ValidationError for a name that is empty, too
    long or (unless ``replace``) taken, a role above the owner's, a cluster that is not declared, a time in the past, or
    if the account has MAX_TOKENS tokens.
    """
    if cluster and cluster not in current.names():
        raise ValidationError({"cluster": f"there is no cluster {cluster!r}"})
    own = user.highest_role([cluster] if cluster else current.names())
    role = own if role is None else role
    if higher(role, own) != own:
        raise ValidationError({"role": f"you are {own}; a token cannot be more"})
    if expires_at is not None and expires_at <= timezone.now():
        raise ValidationError({"expires_at": "this time is past"})
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken(
        user=user, name=name.strip(), role=role, cluster=cluster, token_hash=hashed(secret), expires_at=expires_at
    )
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
    user = owner_of(found)
    now = timezone.now()
    if found is not None and (found.last_used_at is None or now - found.last_used_at > USED_INTERVAL):
        ApiToken.objects.filter(pk=found.pk).update(last_used_at=now)
    return user


def user_of_token_name(username: str, name: str) -> User:
    """As ``user_of_token``, for a token that is known by its account and name."""
    found = ApiToken.objects.select_related("user").filter(user__username=username, name=name)
    return owner_of(found.first())


def owner_of(token: ApiToken | None) -> User:
    """The token's account, with its role limited to the token's. Raises TokenRefused; None stands for no token."""
    if token is None:
        raise TokenRefused("unknown token: it was revoked or never existed")
    if token.expires_at is not None and token.expires_at <= timezone.now():
        raise TokenRefused(f"this token expired on {token.expires_at:%Y-%m-%d %H:%M} UTC")
    if not token.user.is_active:
        raise TokenRefused("the account of this token is closed")
    user = token.user
    user.given, user.limit, user.only_in = given_role(user), Role(token.role), token.cluster
    user.via = f"token {token.name}"
    return user


def given_role(user: User) -> Role | None:
    """The role that the settings give to this name for sign-in by header. The header does not sign in to accounts of
    the identity provider."""
    if not has_given_role(user.username) or hasattr(user, "identity"):
        return None
    return role_of_name(user.username)


def hashed(secret: str) -> str:
    """The stored hash of a token or link. The secret is random and long, so a fast hash is safe."""
    return hashlib.sha256(secret.encode()).hexdigest()
