"""The permissions that a user has now, for work that continues after their request."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

from nsqplatform.accounts.header import role_of_name
from nsqplatform.accounts.models import User
from nsqplatform.accounts.tokens import TokenRefused, user_of_token_name


def user_now(*, username: str, via: str) -> User:
    """The account, with the role that it has now when signed in as ``via`` says (User.via).

    The end of a session changes nothing. Raises PermissionDenied if the account is closed, the token is no longer
    valid, or the settings no longer admit the name.
    """
    if via.startswith("token "):
        try:
            return user_of_token_name(username, via.removeprefix("token "))
        except TokenRefused as error:
            raise PermissionDenied(str(error)) from None
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        raise PermissionDenied(f"the account {username} is closed")
    if via == "header":
        role = role_of_name(username)
        if role is None:
            raise PermissionDenied(f"the settings no longer admit {username}")
        user.given = role
    user.via = via
    return user
