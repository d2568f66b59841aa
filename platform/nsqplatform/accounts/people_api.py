"""All accounts, for admins."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Max, Q
from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Status
from ninja.errors import HttpError

from nsqplatform.accounts import audit, people
from nsqplatform.accounts.account_api import REFUSALS, described_token, revoke
from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.models import User
from nsqplatform.accounts.people import stored_roles
from nsqplatform.accounts.roles import Permission, Role
from nsqplatform.accounts.schemas import (
    EndedOut,
    InvitedOut,
    LinkOut,
    PeopleOut,
    PersonChange,
    PersonIn,
    PersonOut,
    TokensOut,
)
from nsqplatform.accounts.services import INVITATION_LIFETIME
from nsqplatform.accounts.sessions import end_sessions
from nsqplatform.unix_time import unix_ms

router = Router(tags=["people"], auth=needs(Permission.ADMINISTER))


@router.get("", response={200: PeopleOut, **REFUSALS})
def everybody(request: HttpRequest) -> PeopleOut:
    """All accounts, closed ones included."""
    return PeopleOut(people=[described(user) for user in with_counts().order_by("username")])


@router.post("", response={201: InvitedOut, **REFUSALS})
def invite(request: HttpRequest, body: PersonIn) -> Status[InvitedOut]:
    """Create an account, and a link that signs its owner in once."""
    user, path = people.invite(
        by=caller(request),
        username=body.username,
        role=Role(body.role),
        topic_patterns=body.topic_patterns,
        everywhere=body.everywhere,
        cluster_roles=stored_roles(body.cluster_roles),
        remote_address=remote_address(request),
    )
    return Status(201, InvitedOut(**link_out(user, path).model_dump(), person=described(with_counts().get(pk=user.pk))))


@router.patch("{int:person_id}", response={200: PersonOut, **REFUSALS})
def change(request: HttpRequest, person_id: int, body: PersonChange) -> PersonOut:
    """Change the given values: role, topic patterns, whether the account is open."""
    get_person(person_id)
    user = people.change(
        by=caller(request),
        user_id=person_id,
        role=None if body.role is None else Role(body.role),
        topic_patterns=body.topic_patterns,
        everywhere=body.everywhere,
        cluster_roles=None if body.cluster_roles is None else stored_roles(body.cluster_roles),
        is_active=body.is_active,
        remote_address=remote_address(request),
    )
    return described(with_counts().get(pk=user.pk))


@router.post("{int:person_id}/link", response={201: LinkOut, **REFUSALS})
def link(request: HttpRequest, person_id: int) -> Status[LinkOut]:
    """Create another link, for an owner who lost the first one or the password."""
    user = get_person(person_id)
    path = people.new_link(by=caller(request), user=user, remote_address=remote_address(request))
    return Status(201, link_out(user, path))


@router.delete("{int:person_id}/sessions", response={200: EndedOut, **REFUSALS})
def sign_out(request: HttpRequest, person_id: int) -> dict[str, int]:
    """Sign a person out everywhere."""
    user = get_person(person_id)
    ended = end_sessions(user, but=request.session.session_key)
    audit.record(
        user=caller(request),
        action="sign-out everywhere",
        subject=user.username,
        detail=f"{ended} ended",
        remote_address=remote_address(request),
    )
    return {"ended": ended}


@router.get("{int:person_id}/tokens", response={200: TokensOut, **REFUSALS})
def tokens(request: HttpRequest, person_id: int) -> TokensOut:
    """A person's tokens, without their secrets."""
    return TokensOut(tokens=[described_token(token) for token in get_person(person_id).api_tokens.order_by("name")])


@router.delete("{int:person_id}/tokens/{int:token_id}", response={204: None, **REFUSALS})
def revoke_token(request: HttpRequest, person_id: int, token_id: int) -> Status[None]:
    """Revoke a person's token. It is invalid from now on."""
    token = get_person(person_id).api_tokens.filter(pk=token_id).first()
    if token is None:
        raise HttpError(404, "this person has no such token")
    revoke(request, token)
    return Status(204, None)


def get_person(person_id: int) -> User:
    if not 0 < person_id < 2**63:
        raise HttpError(404, "there is no such account")
    try:
        return User.objects.get(pk=person_id)
    except User.DoesNotExist:
        raise HttpError(404, "there is no such account") from None


def with_counts() -> Any:
    now = timezone.now()
    return User.objects.annotate(
        session_count=Count("sessions", filter=Q(sessions__expire_date__gt=now), distinct=True),
        token_count=Count(
            "api_tokens", filter=Q(api_tokens__expires_at=None) | Q(api_tokens__expires_at__gt=now), distinct=True
        ),
        session_seen_at=Max("sessions__seen_at"),
        token_used_at=Max("api_tokens__last_used_at"),
    )


def described(user: Any) -> PersonOut:
    """The response for a row of :func:`with_counts`."""
    seen = [at for at in (user.session_seen_at, user.token_used_at, user.last_login) if at is not None]
    return PersonOut.model_validate(
        {
            "id": user.pk,
            "username": user.username,
            "role": user.role,
            "topic_patterns": user.topic_patterns,
            "everywhere": user.everywhere,
            "cluster_roles": user.cluster_roles,
            "is_active": user.is_active,
            "has_password": user.has_usable_password(),
            "created_at": unix_ms(user.created_at),
            "seen_at": unix_ms(max(seen, default=None)),
            "session_count": user.session_count,
            "token_count": user.token_count,
        }
    )


def link_out(user: User, path: str) -> LinkOut:
    expires_at = timezone.now() + INVITATION_LIFETIME
    return LinkOut(username=user.username, path=path, expires_at=unix_ms(expires_at))
