"""The account of a person at the identity provider: found by issuer and subject, made at the first sign-in."""

from __future__ import annotations

from itertools import chain, count

from django.db import IntegrityError, transaction

from nsqplatform.accounts import audit
from nsqplatform.accounts.header import has_given_role
from nsqplatform.accounts.models import ExternalIdentity, User
from nsqplatform.accounts.oidc.claims import Person, is_subject
from nsqplatform.accounts.people import described, record_change

LONGEST_NAME = 150


def account_of(person: Person, *, remote_address: str) -> User:
    """The person's account, with the role and patterns of the claims, which are stored; closed accounts stay closed.

    An existing account with the same user name or e-mail address is not used unless it has this identity, because a
    provider may let people choose both. The name of the new account then ends in a number.
    """
    try:
        return _stored_account(person, remote_address)
    except IntegrityError:  # another request has just created this account, or one with this user name
        return _stored_account(person, remote_address)


@transaction.atomic
def _stored_account(person: Person, remote_address: str) -> User:
    """Raises IntegrityError if the account, or its user name, is created at the same time."""
    identity = (
        ExternalIdentity.objects.select_related("user")
        .select_for_update(of=("self", "user"))
        .filter(issuer=person.issuer, subject=person.subject)
        .first()
    )
    if identity is None:
        return _new_account(person, remote_address)
    user = identity.user
    if user.is_active:
        _update(user, person, remote_address)
    return user


def find_account(issuer: str, subject: str) -> User | None:
    if not is_subject(subject):
        return None
    identity = ExternalIdentity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()
    return identity.user if identity else None


def _new_account(person: Person, remote_address: str) -> User:
    user = User.objects.create_user(free_name(person.username), role=person.role)
    user.topic_patterns = person.topic_patterns
    user.everywhere, user.cluster_roles = person.everywhere, dict(person.cluster_roles)
    user.save(update_fields=["topic_patterns", "everywhere", "cluster_roles"])
    ExternalIdentity.objects.create(user=user, issuer=person.issuer, subject=person.subject)
    audit.record(
        user=user,
        action="first sign-in by OIDC",
        subject=user.username,
        detail=f"{described(user)}; {person.subject} of {person.issuer}",
        remote_address=remote_address,
    )
    return user


def _update(user: User, person: Person, remote_address: str) -> None:
    before = described(user)
    user.role, user.topic_patterns = person.role, person.topic_patterns
    user.everywhere, user.cluster_roles = person.everywhere, dict(person.cluster_roles)
    user.save(update_fields=["role", "topic_patterns", "everywhere", "cluster_roles"])
    reason = "by the identity provider's claims"
    record_change(user, before=before, by=user, remote_address=remote_address, reason=reason)


def free_name(wanted: str) -> str:
    """The name, or the first of ``name-2``, ``name-3``, … that no account has, and to which the settings give no role
    for sign-in by header."""
    names = chain([wanted], (f"{wanted[: LONGEST_NAME - 8]}-{number}" for number in count(2)))
    return next(name for name in names if not (has_given_role(name) or User.objects.filter(username=name).exists()))
