"""Serves the web app: one HTML file for all its pages, which shows the page of the URL."""

from __future__ import annotations

import re

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.utils.html import escape
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt, ensure_csrf_cookie
from django.views.decorators.http import require_safe

from nsqplatform.accounts.api import clusters_of
from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Permission
from nsqplatform.clusters import current
from nsqplatform.clusters.declaration import DEFAULT

PAGES = re.compile(
    r"/(?:topics(?:/[^/]+){0,2}|nodes(?:/[^/]+)?|counter|lookup|channels|dead|clients|alerts|objectives(?:/\d+)?|reports(?:/.*)?|audit|signin|people|account|definitions|masks|policies|life|views/\d+)?/?"
)
"""Paths of the web app's pages (frontend/src/navigation/routes.ts). Other paths show "not found", with a 404."""

FIRST_CLIENTS = "/api/v1/clients?q=&order=topic&descending=false&limit=100"
"""The first request of the page of clients (frontend/src/stores/clients.svelte.ts), without search and order. The
browser makes it twice if the two differ."""


@never_cache
@ensure_csrf_cookie
def page(request: HttpRequest) -> HttpResponse:
    """Serve the web app. A browser that is not signed in is redirected to the sign-in page, which the web app shows."""
    known = is_page(request)
    if not known and "text/html" not in request.headers.get("Accept", ""):
        return not_found()  # a script's request
    if request.method not in ("GET", "HEAD"):
        return JsonResponse({"message": "METHOD_NOT_ALLOWED"}, status=405, headers={"Allow": "GET, HEAD"})
    if request.path != settings.LOGIN_URL and (refusal := without_access(request)) is not None:
        return refusal
    try:
        shell = (settings.FRONTEND_DIST / "index.html").read_text()
    except FileNotFoundError:
        return render(request, "console/not_built.html", status=503)
    return HttpResponse(
        with_sign_in(with_first_requests(below_base(shell, settings.NSQADMIN.base, current.path()), request)),
        status=200 if known else 404,
    )


def is_page(request: HttpRequest) -> bool:
    """Whether the web app has a page of this path."""
    return PAGES.fullmatch(request.path_info) is not None


def not_found() -> JsonResponse:
    """The same response as nsqadmin's."""
    return JsonResponse({"message": "NOT_FOUND"}, status=404, json_dumps_params={"separators": (",", ":")})


def without_access(request: HttpRequest) -> HttpResponse | None:
    """Where to send a browser that is not signed in, or whose account has no role in this cluster. None if it has."""
    base: str = settings.NSQADMIN.base
    here = request.get_full_path().removeprefix(base)
    if not isinstance(request.user, User):
        of_cluster = f"{base}{current.path()}"
        return redirect_to_login(f"{of_cluster}{here}", login_url=f"{of_cluster}/signin")
    if request.user.may(Permission.VIEW):
        return None
    others = clusters_of(request.user)
    if others and current.name() == DEFAULT and request.path_info in ("/", "/account"):
        return HttpResponseRedirect(f"{others[0].path}{here}")
    context = {"title": current.title(), "clusters": others, "username": request.user.username}
    return render(request, "console/no_access.html", context, status=403)


def below_base(shell: str, base: str, cluster: str) -> str:
    """Insert the base path into the web app: in the paths of its assets and, with the cluster's, in a meta tag."""
    if not base + cluster:
        return shell
    meta = f'<meta name="base-path" content="{escape(base + cluster)}" />'
    shell = shell.replace('"/static/', f'"{escape(base)}/static/')
    return shell.replace("<head>", f"<head>\n    {meta}", 1)


def with_first_requests(shell: str, request: HttpRequest) -> str:
    """Let the browser of a signed-in user request what the web app needs first while it loads the web app."""
    if not isinstance(request.user, User):
        return shell
    paths = ["/api/v1/me"]
    if request.path_info.rstrip("/") == "/clients" and not request.GET:
        paths.append(FIRST_CLIENTS)
    addresses = [escape(settings.NSQADMIN.base + current.path() + path) for path in paths]
    links = "".join(f'\n    <link rel="preload" as="fetch" crossorigin href="{each}" />' for each in addresses)
    return shell.replace("</title>", f"</title>{links}", 1)


def with_sign_in(shell: str) -> str:
    """Insert the ways to sign in into the web app, as meta tags: the identity provider's name, and whether passwords
    are switched off."""
    tags = ""
    if settings.NSQ_OIDC:
        tags += f'\n    <meta name="identity-provider" content="{escape(settings.NSQ_OIDC.name)}" />'
    if not settings.NSQ_LOCAL_SIGN_IN:
        tags += '\n    <meta name="password-sign-in" content="off" />'
    return shell.replace("<head>", f"<head>{tags}", 1)


@require_safe
def ping(request: HttpRequest) -> HttpResponse:
    """Answer a supervisor's readiness check, without using database or Redis."""
    return HttpResponse("OK", content_type="text/plain")


@csrf_exempt
def no_such_endpoint(request: HttpRequest) -> JsonResponse:
    """A JSON 404 for API paths that do not exist."""
    return JsonResponse({"message": f"there is no {request.path}; see /api/v1/docs"}, status=404)
