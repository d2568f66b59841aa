"""The caller's own account: password, tokens, sessions."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status
from ninja.errors import HttpError
from ninja.throttling import AuthRateThrottle

from nsqplatform.accounts import audit
from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.models import ApiToken, Session
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.accounts.schemas import (
    EndedOut,
    InvalidRequest,
    Message,
    NewTokenOut,
    PasswordChange,
    SessionOut,
    SessionsOut,
    TokenIn,
    TokenOut,
    TokensOut,
)
from nsqplatform.accounts.services import change_password
from nsqplatform.accounts.sessions import end_session, end_sessions, open_sessions, public_id, stored_key
from nsqplatform.accounts.tokens import create_token, hashed
from nsqplatform.unix_time import from_unix_ms, unix_ms

router = Router(tags=["account"], auth=needs(Permission.VIEW, by_token=False))
REFUSALS: dict[int, Any] = {401: Message, 403: Message, 404: Message, 422: InvalidRequest, 429: Message}


@router.put("password", response={204: None, **REFUSALS}, throttle=AuthRateThrottle("10/m"))
def put_password(request: HttpRequest, body: PasswordChange) -> Status[None]:
    """Change the caller's password, or set the first one. All other sessions end."""
    change_password(request, user=caller(request), current=body.current_password, new=body.new_password)
    return Status(204, None)


@router.get("tokens", response={200: TokensOut, **REFUSALS})
def tokens(request: HttpRequest) -> TokensOut:
    """The caller's tokens, without their secrets."""
    return TokensOut(tokens=[described_token(token) for token in caller(request).api_tokens.order_by("name")])


@router.post("tokens", response={201: NewTokenOut, **REFUSALS}, throttle=AuthRateThrottle("30/m"))
def make_token(request: HttpRequest, body: TokenIn) -> Status[NewTokenOut]:
    """Create a token for a script. Only this response contains its secret."""
    user = caller(request)
    expires_at = None if body.expires_at is None else from_unix_ms(body.expires_at)
    secret = create_token(
        user=user,
        name=body.name,
        role=Role(body.role),
        cluster=body.cluster,
        expires_at=expires_at,
        replace=False,
    )
    token = ApiToken.objects.get(token_hash=hashed(secret))
    until = f"until {expires_at:%Y-%m-%d}" if expires_at else "until it is revoked"
    audit.record(
        user=user,
        action="make token",
        subject=f"{user.username}: {token.name}",
        detail=f"{token.role}, {until}",
        remote_address=remote_address(request),
    )
    return Status(201, NewTokenOut(**described_token(token).model_dump(), secret=secret))


@router.delete("tokens/{int:token_id}", response={204: None, **REFUSALS})
def revoke_token(request: HttpRequest, token_id: int) -> Status[None]:
    """Revoke a token. It is invalid from now on."""
    user = caller(request)
    token = user.api_tokens.filter(pk=token_id).first()
    if token is None:
        raise HttpError(404, "you have no such token")
    revoke(request, token)
    return Status(204, None)


@router.get("sessions", response={200: SessionsOut, **REFUSALS})
def sessions(request: HttpRequest) -> SessionsOut:
    """The caller's sessions."""
    here = stored_key(request.session.session_key or "")
    return SessionsOut(sessions=[described_session(each, here) for each in open_sessions(caller(request))])


@router.delete("sessions/{session_id}", response={204: None, **REFUSALS})
def sign_out_session(request: HttpRequest, session_id: str) -> Status[None]:
    """End one session."""
    user = caller(request)
    ended = end_session(user, session_id)
    if ended is None:
        raise HttpError(404, "you have no such session")
    audit.record(
        user=user,
        action="sign-out",
        subject=f"{user.username}: session from {ended.address or 'an unknown address'}",
        remote_address=remote_address(request),
    )
    return Status(204, None)


@router.delete("sessions", response={200: EndedOut, **REFUSALS})
def sign_out_everywhere(request: HttpRequest) -> dict[str, int]:
    """End all of the caller's sessions but this one."""
    user = caller(request)
    ended = end_sessions(user, but=request.session.session_key)
    audit.record(
        user=user,
        action="sign-out everywhere",
        subject=user.username,
        detail=f"{ended} ended",
        remote_address=remote_address(request),
    )
    return {"ended": ended}


def revoke(request: HttpRequest, token: ApiToken) -> None:
    token.delete()
    audit.record(
        user=caller(request),
        action="revoke token",
        subject=f"{token.user.username}: {token.name}",
        remote_address=remote_address(request),
    )


def described_token(token: ApiToken) -> TokenOut:
    return TokenOut.model_validate(
        {
            "id": token.pk,
            "name": token.name,
            "role": token.role,
            "cluster": token.cluster,
            "created_at": unix_ms(token.created_at),
            "expires_at": unix_ms(token.expires_at),
            "last_used_at": unix_ms(token.last_used_at),
        }
    )


def described_session(session: Session, here: str) -> SessionOut:
    return SessionOut.model_validate(
        {
            "id": public_id(session),
            "signed_in_at": unix_ms(session.signed_in_at),
            "seen_at": unix_ms(session.seen_at),
            "address": session.address,
            "user_agent": session.user_agent,
            "current": session.session_key == here,
        }
    )
