"""Requests that the whole platform refuses: for an unknown host name, with another method, or while Redis fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.http.request import split_domain_port
from django.shortcuts import render
from django.views.csrf import csrf_failure
from django.views.defaults import bad_request as django_bad_request
from redis.exceptions import RedisError

from nsqplatform.console.environment import ALLOWED_HOSTS
from nsqplatform.console.pages import is_page, not_found, page
from nsqplatform.redis_errors import redis_failure

logger = logging.getLogger(__name__)


class RedisFailures:
    """Django middleware that answers 503 with the reason, where a view raises an error of Redis."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, RedisError):
            return None
        message = redis_failure(exception)
        logger.error("a request needs Redis", extra={"error": message, "path": request.path})
        if wants_page(request):
            return render(request, "console/no_redis.html", {"message": message}, status=503)
        return JsonResponse({"message": message}, status=503)


class OtherMethods:
    """Django middleware that gives the API's 405 responses the body of its other errors.

    The router answers a method that a path does not have with plain text, outside of the API's error handlers.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code != 405 or not request.path_info.startswith("/api/"):
            return response
        allowed = ", ".join(sorted(name.strip() for name in response.headers["Allow"].split(",")))
        message = f"{request.method} is not allowed for {request.path}; allowed: {allowed}"
        return JsonResponse({"message": message}, status=405, headers={"Allow": allowed})


def bad_request(request: HttpRequest, exception: Exception, *args: Any, **kwargs: Any) -> HttpResponse:
    """Django's handler of status 400. The answer to a request for a host name that is not allowed says what to set."""
    if not isinstance(exception, DisallowedHost):
        return django_bad_request(request, exception, *args, **kwargs)
    name = split_domain_port(request.META.get("HTTP_HOST", ""))[0]
    if wants_page(request):
        context = {"name": name, "variable": ALLOWED_HOSTS.name}
        return render(request, "console/refused_host.html", context, status=400)
    message = f"this platform does not answer to the host name {json.dumps(name)}: {ALLOWED_HOSTS.name} has to name it"
    return HttpResponseBadRequest(json.dumps({"message": message}), content_type="application/json")


def no_csrf_token(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's handler of a request without its CSRF token. A script gets an error that it can parse: perhaps it has
    sent ``/pub`` to the port of the platform."""
    if wants_page(request):
        return csrf_failure(request, reason)
    match = request.resolver_match
    if match is not None and match.func is page and not is_page(request):
        return not_found()
    return JsonResponse({"message": reason.rstrip(".")}, status=403)


def wants_page(request: HttpRequest) -> bool:
    """Whether a browser opens a page, rather than the web app or a script calling an endpoint."""
    return "text/html" in request.headers.get("Accept", "")
