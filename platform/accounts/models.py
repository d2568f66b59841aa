"""Accounts, the one-time links that sign them in, and the tokens of their scripts."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.db import models

from accounts.roles import Permission, Role, allows


class UserManager(BaseUserManager["User"]):
    def create_user(self, username: str, password: str | None = None, role: Role = Role.VIEWER) -> User:
        """Make an account without asking whether the password is a good one; no password: only links sign it in."""
        user = self.model(username=username, role=role)
        user.set_password(password)  # None is kept as a hash that nothing matches
        user.save(using=self._db)
        return user


class User(AbstractBaseUser):
    """An account. What it may do hangs on ``role`` alone."""

    username = models.CharField(max_length=150, unique=True, validators=[UnicodeUsernameValidator()])
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "username"

    def may(self, permission: Permission) -> bool:
        """Tell whether the account is active and its role allows this."""
        return self.is_active and allows(self.role, permission)


class OneTimeLink(models.Model):
    """A link that signs its account in, once. Only a hash of its token is kept."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="one_time_links")
    token_hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class ApiToken(models.Model):
    """A script's bearer token. Only a hash of it is kept."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="one_token_of_a_name_per_account")]
