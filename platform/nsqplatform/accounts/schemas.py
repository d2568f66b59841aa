"""Bodies of the accounts' API. Times are unix milliseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from ninja import Schema
from pydantic import AfterValidator, Field

RoleName = Literal["viewer", "operator", "admin"]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control characters are not allowed")
    return text


Line = Annotated[str, AfterValidator(_printable)]
"""A line of text without control characters, which every database can store and every terminal show."""
Patterns = Annotated[list[Annotated[Line, Field(max_length=64)]], Field(max_length=50)]


class Credentials(Schema):
    username: Line = Field(max_length=150)
    password: str = Field(max_length=1024)


class Me(Schema):
    username: str
    role: RoleName
    topic_patterns: list[str] = Field(description="globs of the topics an operator may act on; empty: all")
    via: str = Field(description="session, header, or token and its name")
    has_password: bool
    sign_out_url: str = Field(description="URL to open after signing out; empty: the sign-in page")
    reads_messages: bool = Field(description="whether this role may read messages, by --message-role")
    reads_all_topics: bool = Field(description="whether topic_patterns do not restrict which messages may be read")
    csrf_token: str = Field(description="value of the X-CSRFToken header in requests that change something")


class Message(Schema):
    """The body of an error."""

    message: str


class FieldError(Schema):
    field: str = Field(description="its name, below the body or the query; parts of it after dots, such as bodies.3")
    message: str


class InvalidRequest(Message):
    """The body of a 422. ``message`` contains all of it, as text."""

    field_errors: list[FieldError] = Field(description="empty if no single field is the cause")


class PasswordChange(Schema):
    current_password: str = Field("", max_length=1024, description="omitted if the account has none")
    new_password: str = Field(max_length=1024)


class TokenIn(Schema):
    name: Line = Field(min_length=1, max_length=100)
    role: RoleName = Field(description="role of the token; not above its owner's")
    expires_at: int | None = Field(None, ge=0, le=253_402_300_799_000, description="null: valid until it is revoked")


class TokenOut(Schema):
    id: int
    name: str
    role: RoleName
    created_at: int
    expires_at: int | None
    last_used_at: int | None = Field(description="to the minute")


class NewTokenOut(TokenOut):
    secret: str = Field(description="the token itself, shown only once")


class TokensOut(Schema):
    tokens: list[TokenOut]


class SessionOut(Schema):
    id: str
    signed_in_at: int | None
    seen_at: int | None = Field(description="to the minute")
    address: str
    user_agent: str
    current: bool


class SessionsOut(Schema):
    sessions: list[SessionOut]


class EndedOut(Schema):
    ended: int


class PersonIn(Schema):
    username: Line = Field(min_length=1, max_length=150)
    role: RoleName
    topic_patterns: Patterns = []


class PersonChange(Schema):
    role: RoleName | None = None
    topic_patterns: Patterns | None = None
    is_active: bool | None = None


class PersonOut(Schema):
    id: int
    username: str
    role: RoleName
    topic_patterns: list[str]
    is_active: bool
    has_password: bool
    created_at: int
    seen_at: int | None
    session_count: int
    token_count: int


class PeopleOut(Schema):
    people: list[PersonOut]


class LinkOut(Schema):
    username: str
    path: str = Field(description="signs this account in once; shown only once")
    expires_at: int


class InvitedOut(LinkOut):
    person: PersonOut


class NodeResultOut(Schema):
    node: str
    target: str
    outcome: str
    detail: str


class AuditEntryOut(Schema):
    id: int
    at: int
    user: str = Field(description="empty: unknown caller")
    via: str
    action: str
    topic: str
    channel: str | None
    subject: str = Field(description="the object, if it is not a topic")
    outcome: Literal["done", "partial", "failed", "refused"]
    detail: str
    results: list[NodeResultOut]
    remote_address: str


class AuditOut(Schema):
    entries: list[AuditEntryOut] = Field(description="newest first")


class AuditFacetsOut(Schema):
    """The values to filter the audit trail by."""

    users: list[str]
    actions: list[str]


def ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)
