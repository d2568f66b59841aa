"""The page behind a one-time link."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from nsqplatform.accounts import audit
from nsqplatform.accounts.services import use_link
from nsqplatform.accounts.sessions import open_session


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def sign_in_by_link(request: HttpRequest, token: str) -> HttpResponse:
    """Show a confirmation on GET and sign in on POST, so that a link preview does not use up the link."""
    if request.method != "POST":
        return render(request, "accounts/link.html")
    link = use_link(token=token)
    if link is None:
        return render(request, "accounts/link.html", {"refused": True}, status=410)
    open_session(request, link.user)
    link.user.via = "link"
    audit.record(user=link.user, action="sign-in", remote_address=request.META.get("REMOTE_ADDR", ""))
    # Invited users have no password yet, and need one to sign in again.
    return HttpResponseRedirect(f"{settings.NSQADMIN.base}/{'account' if link.is_invitation else ''}")
