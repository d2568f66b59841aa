"""Signing in and out, and the caller's account."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import logout
from django.http import HttpRequest
from django.middleware.csrf import get_token
from ninja import Router, Status
from ninja.errors import HttpError
from ninja.throttling import AnonRateThrottle

from nsqplatform.accounts import audit
from nsqplatform.accounts.auth import caller, needs
from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission, Role, least_role
from nsqplatform.accounts.schemas import Credentials, InvalidRequest, Me, Message
from nsqplatform.accounts.services import FAILURES_FORGOTTEN_AFTER, SignInFailed, TooManyFailures, sign_in

router = Router(tags=["accounts"])


def described(request: HttpRequest, user: User) -> Me:
    return Me.model_validate(
        {
            "username": user.username,
            "role": user.role,
            "topic_patterns": user.topic_patterns if user.role == Role.OPERATOR else [],
            "via": user.via,
            "has_password": user.has_usable_password(),
            "sign_out_url": settings.NSQADMIN.header_sign_out_url if user.via == "header" else "",
            "reads_messages": user.may(Permission.READ),
            "reads_all_topics": least_role(Permission.READ) is Role.VIEWER,
            "csrf_token": get_token(request),
        }
    )


@router.get("me", auth=needs(Permission.VIEW), response={200: Me, 401: Message})
def me(request: HttpRequest) -> Me:
    """The account that the request is signed in as."""
    return described(request, caller(request))


@router.post(
    "session",
    auth=None,
    response={200: Me, 401: Message, 403: Message, 415: Message, 422: InvalidRequest, 429: Message},
    throttle=AnonRateThrottle("60/m"),  # per address, for all user names together
)
def create_session(request: HttpRequest, credentials: Credentials) -> Me:
    """Sign in by password. Needs no CSRF header, because there is no session yet that has a token."""
    forbid_other_sites(request)
    try:
        user = sign_in(request, username=credentials.username, password=credentials.password)
    except SignInFailed:
        raise HttpError(401, "incorrect user name or password") from None
    except TooManyFailures:
        minutes = int(FAILURES_FORGOTTEN_AFTER.total_seconds() // 60)
        raise HttpError(429, f"too many failed attempts; try again in {minutes} minutes") from None
    return described(request, user)


@router.delete("session", auth=needs(Permission.VIEW), response={204: None, 401: Message})
def delete_session(request: HttpRequest) -> Status[None]:
    """Sign out."""
    audit.record(user=caller(request), action="sign-out", remote_address=request.META.get("REMOTE_ADDR", ""))
    logout(request)
    return Status(204, None)


def forbid_other_sites(request: HttpRequest) -> None:
    """Keep a page of another site from signing in its visitor under another account.

    A form can post to another site, but not as JSON; and a browser sends the page's origin.
    """
    if request.content_type != "application/json":
        raise HttpError(415, "send the name and the password as application/json")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.get_host():
        raise HttpError(403, f"sign-in from {origin} is refused: this is another site")
