"""Accounts, their one-time links, sessions and tokens, and the audit trail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

from nsqplatform.accounts.roles import Permission, Rights, Role, allows, covers, higher, least_role, lower
from nsqplatform.clusters import current
from nsqplatform.clusters.rows import ClusterRow


class UserManager(BaseUserManager["User"]):
    def create_user(self, username: str, password: str | None = None, role: Role = Role.VIEWER) -> User:
        """Create an account without checking the password's strength; without a password, only links sign it in."""
        user = self.model(username=username, role=role)
        user.set_password(password)  # None is stored as a hash that no password matches
        user.save(using=self._db)
        return user


class User(AbstractBaseUser):
    """An account. Its ``rights`` in the current cluster determine its permissions, and the topics on which it may act.
    They follow from the fields ``role``, ``topic_patterns``, ``everywhere`` and ``cluster_roles``."""

    username = models.CharField(max_length=150, unique=True, validators=[UnicodeUsernameValidator()])
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    topic_patterns = models.JSONField(default=list, blank=True)
    """Globs of the topics an operator may act on; empty: all."""
    everywhere = models.BooleanField(default=True)
    """Whether ``role`` applies in every cluster that ``cluster_roles`` does not name; otherwise it applies in none."""
    cluster_roles = models.JSONField(default=dict, blank=True)
    """Roles in single clusters: ``{NAME: {"role", "topic_patterns"}}``; the role ``none`` gives no access."""
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "username"

    via: str = ""
    """How the current request was signed in: ``session``, ``link``, ``oidc``, ``header``, ``token NAME`` or ``script``.
    Not stored."""
    given: Role | None = None
    """The role that the settings give to this name for sign-in by header. Not stored."""
    limit: Role | None = None
    """The role of the token that the request was made with. Not stored."""
    only_in: str = ""
    """The only cluster in which that token is valid; empty: all. Not stored."""

    @property
    def is_by_token(self) -> bool:
        """Whether the current request was made with a token, which no browser sends by itself."""
        return self.via.startswith("token ")

    @property
    def rights(self) -> Rights:
        """The account's rights in the current cluster."""
        return self.rights_in(current.name())

    def rights_in(self, cluster: str) -> Rights:
        own = self.cluster_roles.get(cluster)
        if own is not None:
            stored = Rights(own["role"], tuple(own["topic_patterns"]))
        else:
            stored = Rights(self.role if self.everywhere else "", tuple(self.topic_patterns))
        return stored._replace(role="" if self.only_in not in ("", cluster) else self._effective(stored.role))

    @property
    def rights_over_platform(self) -> Rights:
        """The account's rights over accounts, which belong to no cluster."""
        return Rights(self._effective(self.role) if self.everywhere and not self.only_in else "")

    def highest_role(self, clusters: Iterable[str]) -> Role:
        """The highest role in these clusters; that of a viewer without any."""
        roles = [self.rights_in(cluster).role for cluster in clusters]
        return max((Role(role) for role in roles if role), key=list(Role).index, default=Role.VIEWER)

    def _effective(self, stored: str) -> str:
        """The stored role, raised by the settings and limited by the token. Neither gives access where it is empty."""
        if stored not in Role.values:
            return ""
        role = Role(stored) if self.given is None else higher(Role(stored), self.given)
        return role if self.limit is None else lower(role, self.limit)

    def may(self, permission: Permission, topic: str | None = None) -> bool:
        """Return whether the account is active and its role allows ``permission``; with ``topic``, on that topic."""
        rights = self.rights_over_platform if permission is Permission.ADMINISTER else self.rights
        if not (self.is_active and allows(rights.role, permission)):
            return False
        # Topic patterns do not restrict what every viewer may do.
        if topic is None or least_role(permission) is Role.VIEWER:
            return True
        return covers(rights.role, rights.topic_patterns, topic)


class ExternalIdentity(models.Model):
    """A person at an identity provider, and their account."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="identity")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    """The provider's identifier of the person, which it never gives to another person."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_account_of_a_subject")]


class OneTimeLink(models.Model):
    """A link that signs its account in once. Only a hash of its token is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="one_time_links")
    token_hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    is_invitation = models.BooleanField(default=False)


class ApiToken(models.Model):
    """A script's bearer token. Only its hash is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    token_hash = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.ADMIN)
    """The token's role; its owner's role applies if that is lower."""
    created_at = models.DateTimeField(auto_now_add=True)
    cluster = models.CharField(max_length=32, blank=True, default="")
    """The only cluster in which it is valid; empty: all of its owner's."""
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="one_token_of_a_name_per_account")]


class Session(AbstractBaseSession):
    """A browser's session. Django stores its data; the columns here identify it to the account's owner."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="sessions")
    signed_in_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)
    address = models.CharField(max_length=64, blank=True)
    user_agent = models.CharField(max_length=200, blank=True)


class AuditEntry(ClusterRow):
    """An action of a person or script, or a refused request, with its outcome. Entries are deleted when they are older
    than ``--audit-retention``, and never changed, except that the entry of a job gets its outcome when the job ends.

    A job has one entry for itself, with its ``subject_count``, and one for each subject, without; all have its number
    in ``job``.
    """

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    # The name, not a foreign key: an entry outlives the account.
    user = models.CharField(max_length=150, db_index=True)
    via = models.CharField(max_length=120, blank=True)
    action = models.CharField(max_length=32)
    topic = models.CharField(max_length=200, blank=True)
    channel = models.CharField(max_length=200, null=True)
    subject = models.CharField(max_length=200, blank=True)
    """The object, if it is not a topic: an account, a token, a path of the API."""
    outcome = models.CharField(max_length=16)
    detail = models.CharField(max_length=500, blank=True)
    results = models.JSONField(default=list)
    remote_address = models.CharField(max_length=64)
    job = models.PositiveBigIntegerField(null=True, db_index=True)
    subject_count = models.PositiveIntegerField(null=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]


class ChangedNode(models.Model):
    """A node on which the action of an audit entry was done, as in the entry's ``results``: found by index."""

    entry = models.ForeignKey(AuditEntry, on_delete=models.CASCADE, related_name="changed_nodes")
    node = models.CharField(max_length=300)
    at = models.DateTimeField()
    """That of the entry."""

    class Meta:
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["node", "-at"], name="changed_node_by_time")]
