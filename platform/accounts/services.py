"""Signing in, by password, link or token, and making accounts."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth import authenticate, login
from django.contrib.auth.password_validation import validate_password
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import ApiToken, OneTimeLink, User
from accounts.roles import Permission, Role

FIRST_ACCOUNT = "admin"
LINK_LIFETIME = timedelta(minutes=15)
FAILURES_ALLOWED = 5
FAILURES_FORGOTTEN_AFTER = timedelta(minutes=5)
TOKEN_USE_NOTED_EVERY = timedelta(minutes=1)


class SignInFailed(Exception):
    """The name and the password do not belong together, or the account is closed."""


class TooManyFailures(Exception):
    """Sign-in for this name from this address is refused for a while."""


def first_start() -> str | None:
    """Make the first account, ``admin``, and return the path of a link that signs it in; None if accounts exist.

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


def one_time_link(user: User) -> str:
    """Return the path ``/signin/<token>`` that signs ``user`` in, once, within LINK_LIFETIME."""
    OneTimeLink.objects.filter(expires_at__lt=timezone.now()).delete()
    token = secrets.token_urlsafe(32)
    OneTimeLink.objects.create(user=user, token_hash=hashed(token), expires_at=timezone.now() + LINK_LIFETIME)
    return f"/signin/{token}"


def use_link(*, token: str) -> User | None:
    """Spend a link and return its account; None if it is unknown, spent, too old, or the account is closed."""
    now = timezone.now()
    usable = OneTimeLink.objects.filter(
        token_hash=hashed(token), used_at=None, expires_at__gt=now, user__is_active=True
    )
    # One UPDATE decides, so that of two that come at once only one gets in.
    spent = OneTimeLink.objects.filter(pk__in=usable.values("pk"), used_at=None).update(used_at=now)
    return User.objects.get(one_time_links__token_hash=hashed(token)) if spent else None


def sign_in(request: HttpRequest, *, username: str, password: str) -> User:
    """Open a session. Raises SignInFailed or TooManyFailures.

    Failures are counted per name and address, so that one guesser locks out neither others nor the name's owner.
    """
    counter = "sign-in-failures:" + hashed(f"{username}\n{request.META.get('REMOTE_ADDR', '')}")
    if cache.get(counter, 0) >= FAILURES_ALLOWED:
        raise TooManyFailures
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User):
        cache.add(counter, 0, timeout=FAILURES_FORGOTTEN_AFTER.total_seconds())
        cache.incr(counter)
        raise SignInFailed
    cache.delete(counter)
    login(request, user)
    return user


def create_account(*, username: str, role: Role, password: str | None = None) -> User:
    """Make an account; without a password, only links sign it in.

    Raises Django's ValidationError on a taken or malformed name, or a weak password.
    """
    user = User(username=username, role=role)
    if password is not None:
        validate_password(password, user)
    user.set_password(password)
    user.full_clean()
    user.save()
    return user


def create_token(*, user: User, name: str) -> str:
    """Return a new bearer token; it is shown this once. A token of the same name is replaced."""
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        ApiToken.objects.filter(user=user, name=name).delete()
        ApiToken.objects.create(user=user, name=name, token_hash=hashed(token))
    return token


def user_of_token(token: str) -> User | None:
    """Return the account a bearer token speaks for; None if there is none or it is closed."""
    found = ApiToken.objects.select_related("user").filter(token_hash=hashed(token), user__is_active=True).first()
    if found is None:
        return None
    now = timezone.now()
    if found.last_used_at is None or now - found.last_used_at > TOKEN_USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=found.pk).update(last_used_at=now)
    return found.user


def require(user: User, permission: Permission) -> None:
    """Raise PermissionDenied, in words, unless the account may do this."""
    if not user.may(permission):
        raise PermissionDenied(f"your role, {user.role}, may not {permission.value}")


def hashed(token: str) -> str:
    """What is kept of a token. It is random and long, so a plain hash is as good as a slow one."""
    return hashlib.sha256(token.encode()).hexdigest()
