"""Bodies of the accounts' API. Times are Unix milliseconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from ninja import Schema
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from nsqplatform.unix_time import LATEST_MS
from nsqwire.units import Milliseconds

RoleName = Literal["viewer", "operator", "admin"]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control characters are not allowed")
    return text


Line = Annotated[str, AfterValidator(_printable)]
"""A line of text without control characters, which every database can store and every terminal show."""
Patterns = Annotated[list[Annotated[Line, Field(max_length=64)]], Field(max_length=50)]


class Body(Schema):
    """The body of a request. ``true`` is not a number in it, though Python's bool is an int."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        values = value if isinstance(value, list) else [value]
        if any(isinstance(each, bool) for each in values):
            annotation = cls.model_fields[info.field_name or ""].annotation
            if _takes(annotation, int, float) and not _takes(annotation, bool, Any):
                raise ValueError("a number is expected, not true or false")
        return value


def _takes(annotation: Any, *types: Any) -> bool:
    """Whether one of the types occurs in the annotation."""
    return annotation in types or any(_takes(each, *types) for each in get_args(annotation))


class Credentials(Schema):
    username: Line = Field(max_length=150)
    password: str = Field(max_length=1024)


class ClusterOfAccount(Schema):
    name: str
    title: str
    path: str = Field(description="prefix of the paths of its pages; empty for the cluster at the root")


class Me(Schema):
    username: str
    role: RoleName | Literal["none"] = Field(description="in this cluster; none: no access to it")
    administers: bool = Field(description="whether the account may manage accounts, which belong to no cluster")
    cluster: str = Field(description="the cluster of this request; the one at the root is named default")
    clusters: list[ClusterOfAccount] = Field(description="the clusters that the account may view")
    topic_patterns: list[str] = Field(description="globs of the topics an operator may act on; empty: all")
    via: str = Field(description="session, header, or token and its name")
    has_password: bool
    is_external: bool = Field(description="whether it signs in with the identity provider, and has no password")
    sign_out_url: str = Field(description="URL to open after signing out; empty: the sign-in page")
    reads_messages: bool = Field(description="whether this role may read messages, by --message-role")
    reads_all_topics: bool = Field(description="whether topic_patterns do not restrict which messages may be read")
    csrf_token: str = Field(description="value of the X-CSRFToken header in requests that change something")


class Message(Schema):
    """The body of an error."""

    message: str


class FieldError(Schema):
    field: str = Field(description="name of a field of the body or query; nested ones after dots, such as bodies.3")
    message: str


class InvalidRequest(Message):
    """The body of a 422. ``message`` contains all field errors as one text."""

    field_errors: list[FieldError] = Field(description="empty if no single field is the cause")


class PasswordChange(Schema):
    current_password: str = Field("", max_length=1024, description="omitted if the account has none")
    new_password: str = Field(max_length=1024)


class TokenIn(Body):
    name: Line = Field(min_length=1, max_length=100)
    role: RoleName = Field(description="role of the token; not above its owner's")
    cluster: str = Field("", max_length=32, description="the only cluster in which it is valid; empty: all")
    expires_at: Milliseconds | None = Field(None, ge=0, le=LATEST_MS, description="null: valid until it is revoked")


class TokenOut(Schema):
    id: int
    name: str
    role: RoleName
    cluster: str
    created_at: Milliseconds
    expires_at: Milliseconds | None
    last_used_at: Milliseconds | None = Field(description="to the minute")


class NewTokenOut(TokenOut):
    secret: str = Field(description="the token itself, shown only once")


class TokensOut(Schema):
    tokens: list[TokenOut]


class SessionOut(Schema):
    id: str
    signed_in_at: Milliseconds | None
    seen_at: Milliseconds | None = Field(description="to the minute")
    address: str
    user_agent: str
    current: bool


class SessionsOut(Schema):
    sessions: list[SessionOut]


class EndedOut(Schema):
    ended: int


class ClusterRole(Schema):
    """An account's role in one cluster."""

    role: RoleName | Literal["none"]
    topic_patterns: Patterns = []


ClusterRoles = Annotated[dict[Line, ClusterRole], Field(max_length=100)]


class PersonIn(Schema):
    username: Line = Field(min_length=1, max_length=150)
    role: RoleName
    topic_patterns: Patterns = []
    everywhere: bool = Field(True, description="whether role applies in every cluster that cluster_roles does not name")
    cluster_roles: ClusterRoles = {}


class PersonChange(Schema):
    role: RoleName | None = None
    topic_patterns: Patterns | None = None
    everywhere: bool | None = None
    cluster_roles: ClusterRoles | None = None
    is_active: bool | None = None


class PersonOut(Schema):
    id: int
    username: str
    role: RoleName
    topic_patterns: list[str]
    everywhere: bool
    cluster_roles: ClusterRoles
    is_active: bool
    has_password: bool
    created_at: Milliseconds
    seen_at: Milliseconds | None
    session_count: int
    token_count: int


class PeopleOut(Schema):
    people: list[PersonOut]


class LinkOut(Schema):
    username: str
    path: str = Field(description="signs this account in once; shown only once")
    expires_at: Milliseconds


class InvitedOut(LinkOut):
    person: PersonOut


class NodeResultOut(Schema):
    node: str
    target: str
    outcome: str
    detail: str


AuditOutcome = Literal["done", "partial", "failed", "refused", "running"]
"""``running``: a job that has not ended."""


class AuditEntryOut(Schema):
    id: int
    at: Milliseconds
    user: str = Field(description="empty: unknown caller")
    via: str
    action: str
    topic: str
    channel: str | None
    subject: str = Field(description="the object, if it is not a topic")
    outcome: AuditOutcome
    detail: str
    results: list[NodeResultOut]
    remote_address: str
    job: int | None = Field(description="the job of which this entry is a part; null without one")
    subject_count: int | None = Field(description="number of the job's subjects, in the entry of the job itself")


class AuditOut(Schema):
    entries: list[AuditEntryOut] = Field(description="newest first")


class AuditFacetsOut(Schema):
    """The values to filter the audit trail by."""

    users: list[str]
    actions: list[str]
