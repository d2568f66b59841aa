"""The authorization code flow with PKCE, by Authlib: discovery, keys, state, nonce, and the checks of the ID token."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlencode

from authlib.integrations.base_client.errors import MismatchingStateError, OAuthError
from authlib.integrations.django_client import OAuth
from django.http import HttpRequest, HttpResponse
from joserfc.errors import ClaimError, JoseError
from requests.exceptions import RequestException

from nsqplatform.accounts.oidc.claims import Claims
from nsqplatform.accounts.oidc.provider import IdentityProvider

TIMEOUT_S = 10
LEEWAY_S = 60
"""Tolerated difference between the clocks of the identity provider and this machine."""
UNSIGNED_OR_SYMMETRIC = ("none", "HS256", "HS384", "HS512")
DEFAULT_ALGORITHM = "RS256"
"""The algorithm that every provider supports."""
ACCESS_DENIED = "access_denied"
INVALID_ANSWER = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)
"""The exceptions that Authlib raises for malformed answers of the provider."""


class SignInRefused(Exception):
    """The sign-in failed. ``status`` is the page's; the text is for the user."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Tokens(NamedTuple):
    """``claims``: of the verified ID token; ``sign_out_url``: the provider's, empty if it has none."""

    claims: Claims
    sign_out_url: str


class Client:
    """One identity provider. Its metadata is read at the first sign-in and kept; its keys are read again when it signs
    with a new one."""

    def __init__(self, provider: IdentityProvider) -> None:
        self._provider = provider
        self._app = OAuth().register(
            "oidc",
            client_id=provider.client_id,
            client_secret=provider.client_secret or None,
            server_metadata_url=provider.issuer.rstrip("/") + "/.well-known/openid-configuration",
            client_kwargs={
                "scope": provider.scopes,
                "code_challenge_method": "S256",
                "default_timeout": TIMEOUT_S,
                **({} if provider.client_secret else {"token_endpoint_auth_method": "none"}),
            },
        )

    def redirect(self, request: HttpRequest, callback: str) -> HttpResponse:
        """Send the browser to the provider. State, nonce and PKCE's verifier are kept in the session, for an hour.

        Raises SignInRefused.
        """
        try:
            self._metadata()
            response: HttpResponse = self._app.authorize_redirect(request, callback)
        except (RequestException, OAuthError, *INVALID_ANSWER) as error:
            raise _refused(error) from error
        return response

    def tokens(self, request: HttpRequest, signed_out: str) -> Tokens:
        """Exchange the code of the callback, and verify the ID token: its signature by the provider's keys, issuer,
        audience, times, and the nonce of this browser's session. A state is accepted once.

        ``signed_out`` is the URL to which the provider redirects after a sign-out. Raises SignInRefused.
        """
        try:
            self._require_state(request)
            issuer = self._metadata()
            options = {
                "iss": {"essential": True, "value": issuer},
                "aud": {"essential": True, "value": self._provider.client_id},
            }
            token = self._app.authorize_access_token(request, claims_options=options, leeway=LEEWAY_S)
            claims: Claims = token["userinfo"]
        except (RequestException, OAuthError, JoseError, *INVALID_ANSWER) as error:
            raise _refused(error) from error
        return Tokens(claims, self._sign_out_url(token["id_token"], signed_out))

    def _require_state(self, request: HttpRequest) -> None:
        """Raise MismatchingStateError unless this browser started the sign-in.

        Authlib reports the provider's error before it checks the state, and any site could send a browser here with an
        error text of its own. For ``access_denied`` no such text is shown, and some providers omit the state.
        """
        if request.GET.get("error") == ACCESS_DENIED:
            return
        if self._app.framework.get_state_data(request.session, request.GET.get("state")) is None:
            raise MismatchingStateError

    def _metadata(self) -> str:
        """Load the metadata and return its issuer. Raises ValueError for another provider's, which is not kept."""
        metadata = self._app.load_server_metadata()
        issuer = str(metadata.get("issuer"))
        if issuer.rstrip("/") != self._provider.issuer.rstrip("/"):
            metadata.clear()
            raise ValueError(f"its metadata is of the issuer {issuer!r}")
        offered = metadata.get("id_token_signing_alg_values_supported") or [DEFAULT_ALGORITHM]
        metadata["id_token_signing_alg_values_supported"] = [
            name for name in offered if name not in UNSIGNED_OR_SYMMETRIC
        ] or [DEFAULT_ALGORITHM]  # without a list, the library would accept symmetric ones
        return issuer

    def _sign_out_url(self, id_token: str, signed_out: str) -> str:
        endpoint = self._app.server_metadata.get("end_session_endpoint")
        if not endpoint:
            return ""
        query = {
            "id_token_hint": id_token,
            "client_id": self._provider.client_id,
            "post_logout_redirect_uri": signed_out,
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


@lru_cache(maxsize=4)
def client_of(provider: IdentityProvider) -> Client:
    return Client(provider)


def _refused(error: Exception) -> SignInRefused:
    """The error as a message for the user, and the page's status."""
    match error:
        case MismatchingStateError():
            return SignInRefused("This sign-in was started too long ago, in another browser, or is already complete.")
        case OAuthError(error=denied) if denied == ACCESS_DENIED:
            return SignInRefused("The identity provider denied access.", 403)
        case OAuthError():
            return SignInRefused(f"The identity provider refused the sign-in: {error.description or error.error}.")
        case ClaimError(claim="exp" | "nbf" | "iat"):
            return SignInRefused(
                "The identity provider's token is not valid now: its clock and this platform's differ.", 502
            )
        case JoseError():
            return SignInRefused(f"The identity provider's token is invalid: {error}.", 502)
        case RequestException():
            return SignInRefused("The identity provider does not answer. Try again later.", 502)
        case _:
            return SignInRefused(f"The identity provider's answer is invalid: {error}.", 502)
