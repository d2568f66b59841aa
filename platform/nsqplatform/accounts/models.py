"""Accounts, their one-time links, sessions and tokens, and the audit trail."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

from nsqplatform.accounts.roles import Permission, Role, allows, covers, least_role


class UserManager(BaseUserManager["User"]):
    def create_user(self, username: str, password: str | None = None, role: Role = Role.VIEWER) -> User:
        """Create an account without checking the password's strength; without a password, only links sign it in."""
        user = self.model(username=username, role=role)
        user.set_password(password)  # None is stored as a hash that no password matches
        user.save(using=self._db)
        return user


class User(AbstractBaseUser):
    """An account. Its ``role`` determines its permissions, and ``topic_patterns`` the topics on which it may act."""

    username = models.CharField(max_length=150, unique=True, validators=[UnicodeUsernameValidator()])
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    topic_patterns = models.JSONField(default=list, blank=True)
    """Globs of the topics an operator may act on; empty: all."""
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "username"

    via: str = ""
    """How the current request was signed in: ``session``, ``link``, ``header``, ``token NAME`` or ``script``. Not
    stored."""

    def may(self, permission: Permission, topic: str | None = None) -> bool:
        """Return whether the account is active and its role allows ``permission``, with ``topic`` on that topic."""
        if not (self.is_active and allows(self.role, permission)):
            return False
        # Topic patterns do not restrict what every viewer may do.
        if topic is None or least_role(permission) is Role.VIEWER:
            return True
        return covers(self.role, self.topic_patterns, topic)


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


class AuditEntry(models.Model):
    """An action of a person or script, or a refused request, with its outcome. Entries are never changed, and deleted
    when they are older than ``--audit-retention``."""

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

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
