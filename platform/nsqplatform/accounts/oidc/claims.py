"""Reads the claims of a verified ID token: the person, their role, and their topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.core.exceptions import ValidationError

from nsqplatform.accounts.header import usable
from nsqplatform.accounts.oidc.provider import IdentityProvider
from nsqplatform.accounts.people import checked_patterns
from nsqplatform.accounts.roles import Role, higher

Claims = Mapping[str, object]
MAX_SUBJECT = 255
"""OpenID Connect's limit, in characters."""


class NoAccess(Exception):
    """The claims give no access; the text says why."""


class Person(NamedTuple):
    """``username`` is a name for a new account; the account is found by issuer and subject."""

    issuer: str
    subject: str
    username: str
    role: Role
    topic_patterns: list[str]
    everywhere: bool = True
    """Whether ``role`` applies in all clusters that ``cluster_roles`` does not name."""
    cluster_roles: Mapping[str, Mapping[str, object]] = {}
    """As User.cluster_roles."""


def person_of(claims: Claims, provider: IdentityProvider) -> Person:
    """Raises NoAccess if no role matches, or if the subject or the topic patterns are missing or invalid."""
    subject, issuer = claims.get("sub"), claims.get("iss")
    if not isinstance(subject, str) or not is_subject(subject) or not isinstance(issuer, str):
        raise NoAccess("the identity provider's token names no valid subject")
    role, single = role_of(claims, provider), cluster_roles_of(claims, provider)
    if role is None and not single:
        raise NoAccess(f"none of your groups has a role here: the claim {provider.role_claim} has no matching value")
    patterns: list[str] = []
    if Role.OPERATOR in (role, *single.values()) and provider.topics_claim:
        patterns = texts_of(claims, provider.topics_claim)
        if not patterns:  # without patterns, an operator may act on all topics
            raise NoAccess(f"the claim {provider.topics_claim} names no topics")
        try:
            patterns = checked_patterns(patterns)
        except ValidationError as error:
            raise NoAccess(f"the claim {provider.topics_claim} is invalid: {'; '.join(error.messages)}") from None
    return Person(
        issuer,
        subject,
        username_of(claims, provider, subject),
        role or Role.VIEWER,
        patterns if role is Role.OPERATOR else [],
        everywhere=role is not None,
        cluster_roles={
            cluster: {"role": each.value, "topic_patterns": patterns if each is Role.OPERATOR else []}
            for cluster, each in single.items()
        },
    )


def is_subject(text: str) -> bool:
    """Whether the text can be stored as a subject."""
    return 0 < len(text) <= MAX_SUBJECT and text.isprintable()


def role_of(claims: Claims, provider: IdentityProvider) -> Role | None:
    """The highest role in all clusters of the claim's values, else the default role; None without either."""
    values = set(texts_of(claims, provider.role_claim))
    found = None if provider.default_role == "none" else Role(provider.default_role)
    for value, role in provider.roles:
        if value in values and "@" not in role:
            found = Role(role) if found is None else higher(found, Role(role))
    return found


def cluster_roles_of(claims: Claims, provider: IdentityProvider) -> dict[str, Role]:
    """The highest role of the claim's values in each cluster that they name. It is at least the role in all clusters,
    which it replaces there."""
    values, general = set(texts_of(claims, provider.role_claim)), role_of(claims, provider)
    found: dict[str, Role] = {}
    for value, role in provider.roles:
        name, at, cluster = role.partition("@")
        if at and value in values:
            found[cluster] = higher(Role(name), found.get(cluster, general or Role.VIEWER))
    return found


def username_of(claims: Claims, provider: IdentityProvider, subject: str) -> str:
    """The claim's text if it is valid as a user name, else the subject, else ``user``."""
    names = [*texts_of(claims, provider.username_claim), subject]
    return next((name for name in names if usable(name) and name.isprintable()), "user")


def texts_of(claims: Claims, name: str) -> list[str]:
    """The texts of a claim that is a text or a list. ``a.b`` names the claim ``b`` inside ``a``, unless there is a
    claim ``a.b``."""
    value: object = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
