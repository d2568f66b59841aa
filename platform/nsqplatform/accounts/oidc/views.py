"""The pages of the sign-in with an identity provider: its start, and the callback to which the provider redirects."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from nsqplatform.accounts import audit
from nsqplatform.accounts.counters import increment
from nsqplatform.accounts.models import User
from nsqplatform.accounts.oidc.claims import NoAccess, person_of
from nsqplatform.accounts.oidc.client import Client, SignInRefused, client_of
from nsqplatform.accounts.oidc.identities import account_of, find_account
from nsqplatform.accounts.oidc.provider import IdentityProvider
from nsqplatform.accounts.sessions import end_sessions, open_session

NEXT, SIGN_OUT_URL = "oidc_next", "oidc_sign_out_url"
"""Keys of the session: the page after the sign-in, and the provider's page that signs out there too."""
PERIOD_S, MAX_ATTEMPTS = 60, 60
"""At most MAX_ATTEMPTS starts and callbacks of an address within PERIOD_S, as with passwords."""
STARTED_EXPIRES_S = 3600
"""Time for which the session of an incomplete sign-in is stored. It is short, because anybody can start one."""


@require_GET
@never_cache
def start(request: HttpRequest) -> HttpResponse:
    """Send the browser to the identity provider; ``next`` is the page after the sign-in."""
    provider = _provider()
    if (refusal := _too_many(request)) is not None:
        return refusal
    wanted = request.GET.get("next", "")
    try:
        response = client_of(provider).redirect(request, request.build_absolute_uri(reverse("oidc-callback")))
    except SignInRefused as error:
        return _refuse(request, str(error), error.status)
    if SESSION_KEY not in request.session:
        request.session.set_expiry(STARTED_EXPIRES_S)
    request.session[NEXT] = wanted if url_has_allowed_host_and_scheme(wanted, allowed_hosts=None) else ""
    return response


@require_GET
@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    """Sign in the person whom the identity provider names."""
    provider = _provider()
    if (refusal := _too_many(request)) is not None:
        return refusal
    try:
        return _sign_in(request, provider, client_of(provider))
    except SignInRefused as error:
        return _refuse(request, str(error), error.status)


def _sign_in(request: HttpRequest, provider: IdentityProvider, client: Client) -> HttpResponse:
    tokens = client.tokens(request, request.build_absolute_uri(settings.LOGIN_URL))
    remote_address = request.META.get("REMOTE_ADDR", "")
    try:
        person = person_of(tokens.claims, provider)
    except NoAccess as error:
        known = find_account(str(tokens.claims.get("iss")), str(tokens.claims.get("sub")))
        if known is not None:
            end_sessions(known)
        return _refuse(request, f"You have no access: {error}.", 403, known)
    user = account_of(person, remote_address=remote_address)
    if not user.is_active:
        return _refuse(request, "This account is closed. Ask an administrator to open it.", 403, user)
    wanted = request.session.pop(NEXT, "")
    open_session(request, user)
    request.session[SIGN_OUT_URL] = tokens.sign_out_url
    user.via = "oidc"
    audit.record(user=user, action="sign-in", remote_address=remote_address)
    return HttpResponseRedirect(wanted or f"{settings.NSQADMIN.base}/")


def _provider() -> IdentityProvider:
    provider: IdentityProvider = settings.NSQ_OIDC
    if not provider:
        raise Http404
    return provider


def _too_many(request: HttpRequest) -> HttpResponse | None:
    address = request.META.get("REMOTE_ADDR", "")
    if increment(f"oidc-attempts:{address}", expires_s=PERIOD_S) <= MAX_ATTEMPTS:
        return None
    return _refuse(request, "Too many attempts. Try again in a minute.", 429)


def _refuse(request: HttpRequest, text: str, status: int, user: User | None = None) -> HttpResponse:
    """Show why the sign-in failed, and record it in the audit trail."""
    audit.refused(
        user=None,
        action="sign-in",
        subject=user.username if user else "identity provider",
        detail=text,
        remote_address=request.META.get("REMOTE_ADDR", ""),
    )
    request.refusal_written = True  # type: ignore[attr-defined]
    context = {
        "text": text,
        "name": settings.NSQ_OIDC.name,
        "sign_in": settings.LOGIN_URL if settings.NSQ_LOCAL_SIGN_IN else "",
    }
    return render(request, "accounts/oidc_refused.html", context, status=status)
