"""Serves the web app: one HTML file for all its pages, which shows the page of the URL."""

from __future__ import annotations

import re

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.html import escape
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt, ensure_csrf_cookie
from django.views.decorators.http import require_safe

PAGES = re.compile(
    r"/(?:topics(?:/[^/]+){0,2}|nodes(?:/[^/]+)?|counter|lookup|channels|clients|alerts|reports(?:/.*)?|audit|signin|people|account)?/?"
)
"""Paths of the web app's pages (frontend/src/navigation/routes.ts). Other paths show "not found", with a 404."""


@require_safe
@never_cache
@ensure_csrf_cookie
def page(request: HttpRequest) -> HttpResponse:
    """Serve the web app. A browser that is not signed in is redirected to the sign-in page, which the web app shows."""
    known = PAGES.fullmatch(request.path_info) is not None
    if not known and "text/html" not in request.headers.get("Accept", ""):
        # A script's request: the same response as nsqadmin's.
        return JsonResponse({"message": "NOT_FOUND"}, status=404, json_dumps_params={"separators": (",", ":")})
    if not request.user.is_authenticated and request.path != settings.LOGIN_URL:
        return redirect_to_login(request.get_full_path())
    try:
        shell = (settings.FRONTEND_DIST / "index.html").read_text()
    except FileNotFoundError:
        return render(request, "console/not_built.html", status=503)
    return HttpResponse(
        below_base(shell, settings.NSQADMIN.base),
        status=200 if known else 404,
    )


def below_base(shell: str, base: str) -> str:
    """Insert the base path into the web app: in the paths of its assets and in a meta tag."""
    if not base:
        return shell
    meta = f'<meta name="base-path" content="{escape(base)}" />'
    shell = shell.replace('"/static/', f'"{escape(base)}/static/')
    return shell.replace("<head>", f"<head>\n    {meta}", 1)


@require_safe
def ping(request: HttpRequest) -> HttpResponse:
    """Answer a supervisor's readiness check, without using database or Redis."""
    return HttpResponse("OK", content_type="text/plain")


@csrf_exempt
def no_such_endpoint(request: HttpRequest) -> JsonResponse:
    """A JSON 404 for API paths that do not exist."""
    return JsonResponse({"message": f"there is no {request.path}; see /api/v1/docs"}, status=404)
