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
from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.models import User
from nsqplatform.accounts.oidc.views import SIGN_OUT_URL
from nsqplatform.accounts.roles import Permission, Role, allows, least_role
from nsqplatform.accounts.schemas import ClusterOfAccount, Credentials, InvalidRequest, Me, Message
from nsqplatform.accounts.services import FAILURES_FORGOTTEN_AFTER, SignInFailed, TooManyFailures, is_external, sign_in
from nsqplatform.clusters import current
from nsqwire.counted import counted

router = Router(tags=["accounts"])


def described(request: HttpRequest, user: User) -> Me:
    topic_patterns = list(user.rights.topic_patterns) if user.rights.role == Role.OPERATOR else []
    reads = user.may(Permission.READ)
    return Me.model_validate(
        {
            "username": user.username,
            "role": user.rights.role or "none",
            "topic_patterns": topic_patterns,
            "administers": user.may(Permission.ADMINISTER),
            "cluster": current.name(),
            "clusters": clusters_of(user),
            "via": user.via,
            "has_password": user.has_usable_password(),
            "is_external": is_external(user),
            "sign_out_url": sign_out_url(request, user),
            "reads_messages": reads,
            "reads_all_topics": reads and (not topic_patterns or least_role(Permission.READ) is Role.VIEWER),
            "csrf_token": get_token(request),
        }
    )


def clusters_of(user: User) -> list[ClusterOfAccount]:
    """The clusters that the account may view, the default one first."""
    return [
        ClusterOfAccount(name=name, title=current.title(name), path=f"{settings.NSQADMIN.base}{current.path(name)}")
        for name in current.names()
        if allows(user.rights_in(name).role, Permission.VIEW)
    ]


def sign_out_url(request: HttpRequest, user: User) -> str:
    """The page that signs out at the proxy or the identity provider; empty without either."""
    if user.via == "header":
        return str(settings.NSQADMIN.header_sign_out_url)
    return "" if user.is_by_token else str(request.session.get(SIGN_OUT_URL, ""))


@router.get("me", auth=needs(Permission.VIEW), response={200: Me, 401: Message})
def me(request: HttpRequest) -> Me:
    """The account of the request."""
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
    if not settings.NSQ_LOCAL_SIGN_IN:
        raise HttpError(403, "sign-in with a password is switched off: NSQ_LOCAL_SIGN_IN")
    try:
        user = sign_in(request, username=credentials.username, password=credentials.password)
    except SignInFailed:
        raise HttpError(401, "incorrect user name or password") from None
    except TooManyFailures:
        minutes = int(FAILURES_FORGOTTEN_AFTER.total_seconds() // 60)
        raise HttpError(429, f"too many failed attempts; try again in {counted(minutes, 'minute')}") from None
    return described(request, user)


@router.delete("session", auth=needs(Permission.VIEW), response={204: None, 401: Message})
def delete_session(request: HttpRequest) -> Status[None]:
    """Sign out."""
    audit.record(user=caller(request), action="sign-out", remote_address=remote_address(request))
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
