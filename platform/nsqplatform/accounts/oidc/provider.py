"""The settings of the identity provider. Read before Django's settings, so nothing here uses them."""

from __future__ import annotations

from dataclasses import dataclass, field

ROLES = ("viewer", "operator", "admin")
"""In order of increasing permissions."""


@dataclass(frozen=True, kw_only=True)
class IdentityProvider:
    """An OpenID Connect provider, and the mapping of its claims to roles and topic patterns. Off without an issuer."""

    issuer: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    name: str = "single sign-on"
    """For the button of the sign-in page: "Sign in with …"."""
    scopes: str = "openid profile email"
    username_claim: str = "preferred_username"
    role_claim: str = "groups"
    """A claim with a text or a list of texts, which ``roles`` maps. ``realm_access.roles`` is the claim ``roles``
    inside ``realm_access``."""
    roles: tuple[tuple[str, str], ...] = ()
    """Pairs of a claim's value and a role: ``operator`` in all clusters, ``operator@berlin`` in one."""
    default_role: str = "none"
    """The role without a matching value; ``none``: no access."""
    topics_claim: str = ""
    """A claim with an operator's topic patterns; empty: operators may act on all topics."""

    def __bool__(self) -> bool:
        return bool(self.issuer)


def scopes(text: str) -> str:
    """Raises ValueError unless ``openid`` is one of the scopes."""
    if "openid" not in text.split():
        raise ValueError(text)
    return text


def role_mapping(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``nsq-admins=admin,on-call=operator@berlin``. A value may contain ``=`` (the last one separates the role),
    but no comma. Raises ValueError."""
    pairs = []
    for part in filter(None, map(str.strip, text.split(","))):
        value, _, role = part.rpartition("=")
        if not value or role.partition("@")[0] not in ROLES or role.endswith("@"):
            raise ValueError(part)
        pairs.append((value.strip(), role))
    return tuple(pairs)
