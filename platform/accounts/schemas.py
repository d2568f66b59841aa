"""Bodies of the accounts' API."""

from __future__ import annotations

from typing import Literal

from ninja import Schema
from pydantic import Field


class Credentials(Schema):
    username: str = Field(max_length=150)
    password: str = Field(max_length=1024)


class Me(Schema):
    username: str
    role: Literal["viewer", "operator", "admin"]
    csrf_token: str = Field(description="to be sent as X-CSRFToken with whatever changes something")


class Message(Schema):
    """The body of every error."""

    message: str
