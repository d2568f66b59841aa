"""The paths of the web process. Paths that are not the server's are pages of the web app."""

from __future__ import annotations

from django.urls import path, re_path

from nsqplatform.accounts.oidc.views import callback, start
from nsqplatform.accounts.views import sign_in_by_link
from nsqplatform.console.api import api
from nsqplatform.console.pages import no_such_endpoint, page, ping

handler400 = "nsqplatform.console.refusals.bad_request"
urlpatterns = [
    path("ping", ping),
    # Before the API, whose own root answers with HTML.
    path("api/v1/", no_such_endpoint),
    path("api/v1/", api.urls),
    # A path may contain line breaks, which a dot would not match.
    re_path(r"^api(?:/[\s\S]*)?$", no_such_endpoint),
    path("signin/oidc", start, name="oidc-start"),
    path("signin/oidc/callback", callback, name="oidc-callback"),
    path("signin/<str:token>", sign_in_by_link),
    re_path(r"^(?!static/|ws/)[\s\S]*$", page),
]
