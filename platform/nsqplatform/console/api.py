"""The JSON API under ``/api/v1/``: authentication, error responses, and routers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import NON_FIELD_ERRORS, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.core.exceptions import ValidationError as ModelInvalid
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.request import RawPostDataException
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, Throttled, ValidationError
from ninja.openapi.schema import OpenAPISchema
from redis.exceptions import RedisError

from nsqcluster import ClusterUnreachable, NotInCluster
from nsqcluster.policies import PolicyRefused
from nsqplatform.accounts.account_api import router as account_router
from nsqplatform.accounts.api import router as accounts_router
from nsqplatform.accounts.audit_api import router as audit_router
from nsqplatform.accounts.auth import needs
from nsqplatform.accounts.people_api import router as people_router
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import FieldError, InvalidRequest
from nsqplatform.alerts.api import router as alerts_router
from nsqplatform.cluster.actions.topic_nodes import NodeFailed
from nsqplatform.cluster.api.clients import router as clients_router
from nsqplatform.cluster.api.cluster import router as cluster_router
from nsqplatform.cluster.api.diagnosis import router as diagnosis_router
from nsqplatform.cluster.api.drains import router as drains_router
from nsqplatform.cluster.api.hand_overs import router as hand_overs_router
from nsqplatform.cluster.api.history import router as history_router
from nsqplatform.cluster.api.lives import router as lives_router
from nsqplatform.cluster.api.masks import router as masks_router
from nsqplatform.cluster.api.message_types import router as message_types_router
from nsqplatform.cluster.api.messages import router as messages_router
from nsqplatform.cluster.api.policies import router as policies_router
from nsqplatform.cluster.messages.publish import CannotPublish, NotAccepted
from nsqplatform.console.events_api import router as events_router
from nsqplatform.console.socket_messages import message_schemas
from nsqplatform.definitions.api import router as definitions_router
from nsqplatform.definitions.errors import InvalidDefinitions, NotAllKnown
from nsqplatform.jobs.api import router as jobs_router
from nsqplatform.marks.api import router as marks_router
from nsqplatform.nsqadmin.graphs_api import router as graphs_router
from nsqplatform.objectives.api import router as objectives_router
from nsqplatform.redis_errors import redis_failure
from nsqplatform.reports.api import router as reports_router
from nsqplatform.reports.archive_api import router as archive_router
from nsqplatform.reports.columns_api import router as columns_router
from nsqplatform.reports.document.api import router as documents_router
from nsqplatform.reports.results_api import router as results_router
from nsqplatform.saved_views.api import router as views_router

logger = logging.getLogger(__name__)

UNDECLARED = needs(Permission.ADMINISTER)
"""Permission for endpoints without ``auth=needs(…)``; a test fails for such an endpoint."""


class PlatformAPI(NinjaAPI):
    """The API, whose OpenAPI document also has the messages of the websockets."""

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        document = super().get_openapi_schema(**options)
        components = document["components"]
        components["schemas"] = message_schemas() | components["schemas"]
        return document


api = PlatformAPI(title="NSQ platform", version="1", urls_namespace="api-v1", auth=UNDECLARED)
api.add_router("", accounts_router)
api.add_router("account", account_router)
api.add_router("people", people_router)
api.add_router("audit", audit_router)
api.add_router("", cluster_router)
api.add_router("", clients_router)
api.add_router("", messages_router)
api.add_router("", lives_router)
api.add_router("", masks_router)
api.add_router("", message_types_router)
api.add_router("", policies_router)
api.add_router("", drains_router)
api.add_router("", hand_overs_router)
api.add_router("", history_router)
api.add_router("", diagnosis_router)
api.add_router("", events_router)
api.add_router("", graphs_router)
api.add_router("jobs", jobs_router)
api.add_router("reports", reports_router)
api.add_router("reports", results_router)
api.add_router("reports", documents_router)
api.add_router("reports", columns_router)
api.add_router("reports", archive_router)
api.add_router("alerts", alerts_router)
api.add_router("objectives", objectives_router)
api.add_router("", definitions_router)
api.add_router("views", views_router)
api.add_router("marks", marks_router)


def refuse(request: HttpRequest, status: int, message: str) -> HttpResponse:
    if status == 422:
        return api.create_response(request, InvalidRequest(message=message, field_errors=[]), status=422)
    return api.create_response(request, {"message": message}, status=status)


def refuse_fields(request: HttpRequest, errors: Sequence[tuple[str, str]]) -> HttpResponse:
    """Answer 422. ``errors`` are pairs of field and text; an empty field stands for the whole request."""
    body = InvalidRequest(
        message="; ".join(f"{field}: {text}" if field else text for field, text in errors),
        field_errors=[FieldError(field=field, message=text) for field, text in errors if field],
    )
    return api.create_response(request, body, status=422)


@api.exception_handler(HttpError)
def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return refuse(request, error.status_code, error.message)


@api.exception_handler(AuthenticationError)
def on_unknown_caller(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    return refuse(request, 401, "sign in, or send a valid token")


@api.exception_handler(Throttled)
def on_too_often(request: HttpRequest, error: Throttled) -> HttpResponse:
    return refuse(request, 429, "too many requests; try again in a minute")


@api.exception_handler(PermissionDenied)
def on_denied(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
    return refuse(request, 403, str(error) or "not allowed")


@api.exception_handler(Http404)
def on_not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    return refuse(request, 404, str(error) or "there is nothing here")


@api.exception_handler(NotInCluster)
def on_not_in_cluster(request: HttpRequest, error: NotInCluster) -> HttpResponse:
    return refuse(request, 404, str(error))


@api.exception_handler(ClusterUnreachable)
@api.exception_handler(NodeFailed)
@api.exception_handler(NotAccepted)
@api.exception_handler(NotAllKnown)
def on_failed_node(
    request: HttpRequest, error: ClusterUnreachable | NodeFailed | NotAccepted | NotAllKnown
) -> HttpResponse:
    return refuse(request, 502, str(error))


@api.exception_handler(CannotPublish)
def on_unpublishable(request: HttpRequest, error: CannotPublish) -> HttpResponse:
    return refuse_fields(request, [(error.field, error.text)])


@api.exception_handler(PolicyRefused)
def on_refused_policy(request: HttpRequest, error: PolicyRefused) -> HttpResponse:
    return refuse_fields(request, [(error.field, error.text)])


@api.exception_handler(InvalidDefinitions)
def on_refused_definitions(request: HttpRequest, error: InvalidDefinitions) -> HttpResponse:
    return refuse_fields(request, error.faults)


@api.exception_handler(ValidationError)
def on_malformed_request(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Name each field: ``topic: Field required; action: Input should be …``."""
    errors = []
    for problem in error.errors:
        source, *where = problem["loc"]
        # The first part of a path in the body is the name of the endpoint's parameter, not of a field.
        field = ".".join(str(part) for part in (where[1:] if source == "body" else where))
        text = problem["msg"].removeprefix("Value error, ")  # pydantic's words before ours
        errors.append((field, text) if field else ("", f"{source}: {text}"))
    return refuse_fields(request, errors)


@api.exception_handler(ModelInvalid)
def on_invalid_value(request: HttpRequest, error: ModelInvalid) -> HttpResponse:
    if not hasattr(error, "error_dict"):
        return refuse(request, 422, "; ".join(error.messages))
    return refuse_fields(
        request,
        [
            ("" if field == NON_FIELD_ERRORS else field, text)
            for field, texts in error.message_dict.items()
            for text in texts
        ],
    )


@api.exception_handler(RequestDataTooBig)
def on_too_much(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return refuse(request, 413, f"a request may have at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes")


@api.exception_handler(MultiPartParserError)
@api.exception_handler(SuspiciousOperation)
def on_unreadable_form(request: HttpRequest, error: Exception) -> HttpResponse:
    """Django looks for the CSRF token of a session in a body that says it is a form."""
    return refuse(request, 400, str(error))


@api.exception_handler(RawPostDataException)
def on_form(request: HttpRequest, error: RawPostDataException) -> HttpResponse:
    """Django has read the body as a form, for the CSRF token of a session."""
    return refuse(request, 400, "the body is JSON: send it with Content-Type: application/json")


@api.exception_handler(RedisError)
def on_no_redis(request: HttpRequest, error: RedisError) -> HttpResponse:
    message = redis_failure(error)
    logger.error("a request needs Redis", extra={"error": message})
    return refuse(request, 503, message)


@api.exception_handler(Exception)
def on_defect(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.exception("request failed", exc_info=error, extra={"method": request.method, "path": request.path})
    return refuse(request, 500, "internal error; the web process has logged it")
