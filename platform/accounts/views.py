"""The page behind a one-time link."""

from __future__ import annotations

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts.services import use_link


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def sign_in_by_link(request: HttpRequest, token: str) -> HttpResponse:
    """Ask first, sign in on POST: whatever fetches links to preview them spends nothing."""
    if request.method != "POST":
        return render(request, "accounts/link.html")
    user = use_link(token=token)
    if user is None:
        return render(request, "accounts/link.html", {"refused": True}, status=410)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return HttpResponseRedirect("/")
