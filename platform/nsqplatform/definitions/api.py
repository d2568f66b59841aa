"""``/api/v1/definitions``: export and import of definitions as TOML."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import Field

from nsqcluster import Result
from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster.actions.notification import notify_all, origin_of
from nsqplatform.definitions.changes import Change, Outcome, Verb
from nsqplatform.definitions.document import to_toml
from nsqplatform.definitions.errors import FieldFault, InvalidDefinitions
from nsqplatform.definitions.services import export, import_definitions, sections_in

router = Router(tags=["definitions"])
TOML = "application/toml"
SectionName = Literal[
    "topics",
    "channels",
    "policies",
    "notifiers",
    "objectives",
    "rules",
    "silences",
    "schedules",
    "masks",
    "views",
    "people",
]


class FieldChangeOut(Schema):
    field: str
    before: str = Field(description="as in the file; empty: none")
    after: str


class ChangeOut(Schema):
    section: SectionName
    name: str = Field(description="a channel's is topic/channel, a policy's topic pattern / channel pattern")
    verb: Verb = Field(description="keep: the file lacks this existing entry, and prune was not requested")
    path: str = Field(description="place in the file, such as rules.2; empty if the file does not have it")
    fields: list[FieldChangeOut]
    messages: int = Field(description="number of messages that the removal deletes")
    outcome: Outcome = Field(description="planned in a dry run")
    detail: str
    results: list[Result] = Field(description="of the cluster's servers, for topics, channels and policies")


class ReviewOut(Schema):
    dry_run: bool
    changes: list[ChangeOut]
    unchanged: int = Field(description="number of entries that do not differ from the file")
    unanswered: list[str] = Field(description="servers of the cluster that did not answer, with the reasons")


@router.get(
    "definitions",
    auth=needs(Permission.VIEW),
    response={200: str, 401: Message, 403: Message, 422: InvalidRequest, 502: Message},
    openapi_extra={"responses": {200: {"content": {TOML: {"schema": {"type": "string"}}}}}},
)
def export_definitions(
    request: HttpRequest,
    only: str = Query("", max_length=200, description="names of sections, separated by commas; empty: all"),
    secrets: bool = Query(False, description="webhook URLs in full, for administrators"),
) -> HttpResponse:
    """All definitions that the caller may see, as TOML in a stable order."""
    document = export(by=caller(request), secrets=secrets, only=sections_in(only))
    answer = HttpResponse(to_toml(document), content_type=f"{TOML}; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="nsq-definitions.toml"'
    return answer


@router.post(
    "definitions",
    auth=needs(Permission.ATTEND),
    response={200: ReviewOut, 401: Message, 403: Message, 413: Message, 422: InvalidRequest, 502: Message},
    openapi_extra={"requestBody": {"required": True, "content": {TOML: {"schema": {"type": "string"}}}}},
)
def import_file(
    request: HttpRequest,
    dry_run: bool = Query(False, description="return the changes without making them"),
    prune: bool = Query(False, description="remove existing entries that the file's sections lack"),
) -> ReviewOut:
    """Create and change entries as the file defines them. Each change needs its own permission; if one is refused,
    nothing is changed. Topics, channels and policies are changed last, with an outcome for each."""
    review = import_definitions(
        text=text_of(request.body),
        by=caller(request),
        dry_run=dry_run,
        prune=prune,
        remote_address=remote_address(request),
    )
    if not dry_run:
        notify_of(request, review.changes)
    return ReviewOut.model_validate(
        {
            "dry_run": dry_run,
            "changes": review.changes,
            "unchanged": review.unchanged,
            "unanswered": review.unanswered,
        }
    )


def text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidDefinitions([FieldFault("", "the file is not UTF-8")]) from None


def notify_of(request: HttpRequest, changes: list[Change]) -> None:
    """Notify ``--notification-http-endpoint`` of each action on the cluster."""
    origin = origin_of(request)
    for change in changes:
        for action in change.actions:
            notify_all(origin, action, *change.topic_and_channel)
