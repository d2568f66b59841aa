"""The pages: one file of the web app answers for all of them, and draws the right one in the browser."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt, ensure_csrf_cookie
from django.views.decorators.http import require_safe

POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'"
)
"""Nothing is loaded from, or sent to, anywhere else. Inline styles are how charts place their parts."""


@require_safe
@never_cache
@ensure_csrf_cookie
def page(request: HttpRequest) -> HttpResponse:
    """The web app for whoever is signed in, and its sign-in page for everybody."""
    if not request.user.is_authenticated and request.path != settings.LOGIN_URL:
        return redirect_to_login(request.get_full_path())
    try:
        shell = (settings.FRONTEND_DIST / "index.html").read_text()
    except FileNotFoundError:
        return render(request, "console/not_built.html", status=503)
    return HttpResponse(shell, headers={"Content-Security-Policy": POLICY})


@require_safe
def ping(request: HttpRequest) -> HttpResponse:
    """Tell a supervisor that the web process answers; asks nothing else."""
    return HttpResponse("OK", content_type="text/plain")


@csrf_exempt
def no_such_endpoint(request: HttpRequest) -> JsonResponse:
    """An API path that does not exist is not a page."""
    return JsonResponse({"message": f"there is no {request.path}; /api/v1/docs lists what there is"}, status=404)
