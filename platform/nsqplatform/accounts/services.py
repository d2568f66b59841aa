"""Signing in, by password or link, and creating accounts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth import authenticate, update_session_auth_hash
from django.contrib.auth.password_validation import validate_password
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils import timezone

from nsqplatform.accounts import audit
from nsqplatform.accounts.counters import increment
from nsqplatform.accounts.models import ExternalIdentity, OneTimeLink, User
from nsqplatform.accounts.roles import Role
from nsqplatform.accounts.sessions import end_sessions, open_session
from nsqplatform.accounts.tokens import hashed

FIRST_ACCOUNT = "admin"
LINK_LIFETIME = timedelta(minutes=15)
INVITATION_LIFETIME = timedelta(days=3)
FAILURES_ALLOWED = 5
FAILURES_FORGOTTEN_AFTER = timedelta(minutes=5)


class SignInFailed(Exception):
    """User name or password are incorrect, or the account is closed."""


class TooManyFailures(Exception):
    """Sign-in for this name from this address is refused for a while."""


def first_start() -> str | None:
    """Create the first account, ``admin``, and return the path of a link that signs it in; None if accounts exist.

    The account has no password until its owner sets one (``manage.py changepassword admin``).
    """
    if User.objects.exists():
        return None
    try:
        with transaction.atomic():
            user = User.objects.create_user(FIRST_ACCOUNT, role=Role.ADMIN)
    except IntegrityError:  # another process was first
        return None
    return one_time_link(user)


def one_time_link(user: User, *, lifetime: timedelta = LINK_LIFETIME) -> str:
    """Return the path ``/signin/<token>``, which signs ``user`` in once, within ``lifetime``."""
    OneTimeLink.objects.filter(expires_at__lt=timezone.now()).delete()
    token = secrets.token_urlsafe(32)
    OneTimeLink.objects.create(
        user=user,
        token_hash=hashed(token),
        expires_at=timezone.now() + lifetime,
        is_invitation=lifetime == INVITATION_LIFETIME,
    )
    return f"/signin/{token}"


def use_link(*, token: str) -> OneTimeLink | None:
    """Use a link and return it; None if it is unknown, used, expired, or the account is closed."""
    now = timezone.now()
    usable = OneTimeLink.objects.filter(
        token_hash=hashed(token), used_at=None, expires_at__gt=now, user__is_active=True
    )
    # A single UPDATE, so that only one of two concurrent requests succeeds.
    spent = OneTimeLink.objects.filter(pk__in=usable.values("pk"), used_at=None).update(used_at=now)
    return OneTimeLink.objects.select_related("user").get(token_hash=hashed(token)) if spent else None


def sign_in(request: HttpRequest, *, username: str, password: str) -> User:
    """Open a session. Raises SignInFailed or TooManyFailures.

    Failures are counted per name and address, so that an attacker locks out neither others nor the account's owner. An
    attempt is counted before its password is checked, so that concurrent attempts cannot exceed the limit. The endpoint
    limits the attempts per address.
    """
    address = request.META.get("REMOTE_ADDR", "")
    counter = "sign-in-failures:" + hashed(f"{username}\n{address}")
    if increment(counter, expires_s=FAILURES_FORGOTTEN_AFTER.total_seconds()) > FAILURES_ALLOWED:
        record_refused_sign_in(request, username, "too many failed attempts")
        raise TooManyFailures
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User):
        record_refused_sign_in(request, username, "wrong name or password")
        raise SignInFailed
    cache.delete(counter)
    open_session(request, user)
    user.via = "session"
    audit.record(user=user, action="sign-in", remote_address=address)
    return user


def record_refused_sign_in(request: HttpRequest, username: str, why: str) -> None:
    """Record a refused sign-in. An unknown name is left out, because users sometimes type their password there."""
    known = User.objects.filter(username=username).exists()
    audit.refused(
        user=None,
        action="sign-in",
        subject=username if known else "unknown name",
        detail=why,
        remote_address=request.META.get("REMOTE_ADDR", ""),
    )
    request.refusal_written = True  # type: ignore[attr-defined]


def change_password(request: HttpRequest, *, user: User, current: str, new: str) -> None:
    """Change the account's password and end its other sessions.

    ``current`` is ignored for an account without a password. Raises ValidationError that names the field.
    """
    if is_external(user):
        raise ValidationError("this account has no password: it signs in with the identity provider")
    if user.has_usable_password() and not user.check_password(current):
        raise ValidationError({"current_password": "this is not your password"})
    try:
        validate_password(new, user)
    except ValidationError as error:
        raise ValidationError({"new_password": error.messages}) from None
    user.set_password(new)
    user.save(update_fields=["password"])
    update_session_auth_hash(request, user)  # gives the session a new key
    end_sessions(user, but=request.session.session_key)
    audit.record(user=user, action="change password", subject=user.username, remote_address=request.META["REMOTE_ADDR"])


def is_external(user: User) -> bool:
    """Whether the account signs in with an identity provider."""
    return ExternalIdentity.objects.filter(user=user).exists()


def create_account(
    *,
    username: str,
    role: Role,
    password: str | None = None,
    topic_patterns: Sequence[str] = (),
    everywhere: bool = True,
    cluster_roles: Mapping[str, Mapping[str, Any]] | None = None,
) -> User:
    """Create an account; without a password, only links sign it in.

    Raises Django's ValidationError on a taken or malformed name, or a weak password.
    """
    user = User(
        username=username,
        role=role,
        topic_patterns=list(topic_patterns),
        everywhere=everywhere,
        cluster_roles=dict(cluster_roles or {}),
    )
    if password is not None:
        validate_password(password, user)
    user.set_password(password)
    user.full_clean()
    user.save()
    return user
