"""Sign-in with a real OpenID Connect provider: oidc-provider-mock, which signs with keys and serves discovery."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from django.db.models.signals import post_save
from django.test import Client
from django.utils import timezone
from oidc_provider_mock import User as Subject
from oidc_provider_mock import _app as provider_app
from oidc_provider_mock import run_server_in_thread

from nsqdaemon.variable import InvalidVariable
from nsqplatform.accounts.models import AuditEntry, ExternalIdentity, Session, User
from nsqplatform.accounts.oidc.claims import NoAccess, person_of
from nsqplatform.accounts.oidc.provider import IdentityProvider
from nsqplatform.accounts.services import one_time_link
from nsqplatform.accounts.tokens import create_token
from nsqplatform.console.environment import identity_provider
from tests.harness.waiting import DEADLINE_S
from tests.harness.web import get as http_get

pytestmark = [pytest.mark.django_db, pytest.mark.database]

SUBJECTS = {
    "s-ana": {"preferred_username": "ana", "groups": ["staff", "nsq-admins"], "email": "ana@example.com"},
    "s-olga": {"preferred_username": "olga", "groups": ["nsq-ops"], "nsq_topics": ["orders.*"]},
    "s-vera": {"preferred_username": "vera", "groups": ["staff"], "email": "ana@example.com"},
    "s" * 256: {"preferred_username": "long", "groups": ["nsq-admins"]},
}


class SignIn:
    """A browser that signs in with the provider."""

    def __init__(self) -> None:
        self.browser = Client(enforce_csrf_checks=True)

    def start(self, after: str = "") -> str:
        """The provider's page to which the platform leads."""
        answer = self.browser.get("/signin/oidc", {"next": after})
        assert answer.status_code == 302, answer.content
        return str(answer["Location"])

    def choose(self, page: str, subject: str, **form: str) -> str:
        """The callback to which the provider leads."""
        answer = httpx.post(page, data={"sub": subject} | form, trust_env=False, timeout=DEADLINE_S)
        assert answer.status_code == 302, answer.text
        return answer.headers["Location"].removeprefix("http://testserver")

    def run(self, subject: str, after: str = "") -> Any:
        return self.browser.get(self.choose(self.start(after), subject))

    @property
    def me(self) -> Any:
        return self.browser.get("/api/v1/me").json()


@pytest.fixture
def provider(settings: Any, redis: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Starts the provider on a free port; changes the settings."""
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")  # the provider refuses http otherwise
    subjects = [Subject(sub=sub, claims=claims) for sub, claims in SUBJECTS.items()]
    with run_server_in_thread(user_claims=subjects) as server:
        settings.NSQ_OIDC = IdentityProvider(
            issuer=f"http://localhost:{server.server_port}",
            client_id="nsq",
            client_secret="secret",
            roles=(("nsq-admins", "admin"), ("nsq-ops", "operator")),
            topics_claim="nsq_topics",
        )

        def change(**values: Any) -> None:
            settings.NSQ_OIDC = replace(settings.NSQ_OIDC, **values)

        yield change


@pytest.fixture
def sign_in(provider: Any) -> SignIn:
    return SignIn()


def refusal(answer: Any, status: int) -> str:
    """The message of a refused sign-in, which is also in the audit trail."""
    assert answer.status_code == status, answer.content
    entry = AuditEntry.objects.filter(action="sign-in", outcome="refused").first()
    assert entry is not None
    text = answer.content.decode().split('<p role="alert">')[1].split("</p>")[0]
    assert entry.detail == text.replace("&#x27;", "'")
    return text.replace("&#x27;", "'")


def test_a_person_signs_in_and_is_an_admin_by_a_group(sign_in: SignIn) -> None:
    """The account is made, without a password; the browser returns to the page that was asked for."""
    page = sign_in.start("/topics?q=orders")
    query = parse_qs(urlsplit(page).query)
    assert query["response_type"] == ["code"]
    assert query["code_challenge_method"] == ["S256"]
    assert query["state"]
    assert query["nonce"]
    answer = sign_in.browser.get(sign_in.choose(page, "s-ana"))
    assert (answer.status_code, answer["Location"]) == (302, "/topics?q=orders")
    me = sign_in.me
    assert (me["username"], me["role"], me["has_password"], me["is_external"]) == ("ana", "admin", False, True)
    entries = AuditEntry.objects.values_list("user", "via", "action", "outcome")
    assert list(entries) == [("ana", "oidc", "sign-in", "done"), ("ana", "", "first sign-in by OIDC", "done")]


def test_an_operator_has_the_topics_of_a_claim(sign_in: SignIn) -> None:
    sign_in.run("s-olga")
    assert (sign_in.me["role"], sign_in.me["topic_patterns"]) == ("operator", ["orders.*"])


def test_the_code_is_proved_with_the_verifier_of_the_challenge(sign_in: SignIn, monkeypatch: Any) -> None:
    """PKCE: the hash of the verifier in the token request is the challenge of the first request."""
    verifiers = []
    original = provider_app.AuthorizationCodeGrant.validate_token_request

    def noted(grant: Any) -> None:
        verifiers.append(grant.request.form["code_verifier"])
        original(grant)

    monkeypatch.setattr(provider_app.AuthorizationCodeGrant, "validate_token_request", noted)
    page = sign_in.start()
    assert sign_in.browser.get(sign_in.choose(page, "s-ana")).status_code == 302
    [verifier] = verifiers
    expected = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert parse_qs(urlsplit(page).query)["code_challenge"] == [expected]


def test_without_a_matching_group_there_is_no_access_or_the_default_role(sign_in: SignIn, provider: Any) -> None:
    assert "You have no access: none of your groups has a role here" in refusal(sign_in.run("s-vera"), 403)
    assert not User.objects.filter(username="vera").exists()
    provider(default_role="viewer")
    assert sign_in.run("s-vera").status_code == 302
    assert sign_in.me["role"] == "viewer"


def test_a_person_who_lost_the_group_is_signed_out_everywhere(sign_in: SignIn, provider: Any) -> None:
    """At the next sign-in, whatever browser."""
    sign_in.run("s-ana")
    provider(roles=(("nsq-ops", "operator"),))
    refusal(SignIn().run("s-ana"), 403)
    assert sign_in.browser.get("/api/v1/me").status_code == 401


def test_an_operator_without_topics_in_the_claim_has_no_access(sign_in: SignIn, provider: Any) -> None:
    """No patterns would mean all topics."""
    provider(roles=(("staff", "operator"),))
    assert "the claim nsq_topics names no topics" in refusal(sign_in.run("s-vera"), 403)


def test_the_account_is_found_by_subject_and_never_by_name_or_address(
    sign_in: SignIn, provider: Any, account: Any
) -> None:
    """A local account of the same name is another person's; the same subject is the same account, renamed or not."""
    local = account("viewer", "ana")
    sign_in.run("s-ana")
    assert sign_in.me["username"] == "ana-2"
    provider(default_role="viewer")
    other = SignIn()
    other.run("s-vera")  # with the verified address of s-ana
    assert other.me["username"] == "vera"
    provider(username_claim="email")
    again = SignIn()
    again.run("s-ana")
    assert again.me["username"] == "ana-2"
    assert not ExternalIdentity.objects.filter(user=local).exists()


def test_a_role_that_changed_at_the_provider_is_stored_and_audited(sign_in: SignIn, provider: Any) -> None:
    sign_in.run("s-ana")
    provider(roles=(("nsq-admins", "viewer"),))
    sign_in.run("s-ana")
    assert sign_in.me["role"] == "viewer"
    entry = AuditEntry.objects.get(action="change account")
    assert entry.detail == "admin → viewer, by the identity provider's claims"


def test_a_closed_account_stays_closed(sign_in: SignIn) -> None:
    sign_in.run("s-ana")
    User.objects.filter(username="ana").update(is_active=False)
    other = SignIn()
    assert refusal(other.run("s-ana"), 403).startswith("This account is closed.")
    assert other.browser.get("/api/v1/me").status_code == 401


def test_a_denied_sign_in_shows_a_page(sign_in: SignIn) -> None:
    page = sign_in.start()
    denied = sign_in.choose(page, "s-ana", action="deny")
    assert "error=access_denied" in denied
    assert refusal(sign_in.browser.get(denied), 403) == "The identity provider denied access."


def test_a_callback_is_accepted_once_and_in_the_same_browser_only(sign_in: SignIn) -> None:
    """A replayed state, an invented one, and one of another browser."""
    callback = sign_in.choose(sign_in.start(), "s-ana")
    message = "This sign-in was started too long ago, in another browser, or is already complete."
    assert refusal(Client().get(callback), 400) == message
    assert sign_in.browser.get(callback).status_code == 302
    assert refusal(sign_in.browser.get(callback), 400) == message
    assert refusal(sign_in.browser.get("/signin/oidc/callback?code=x&state=y"), 400) == message
    assert refusal(sign_in.browser.get("/signin/oidc/callback"), 400) == message


def test_an_error_that_this_browser_did_not_cause_is_not_shown(sign_in: SignIn) -> None:
    """Any site can lead a browser to the callback, with a text of its own."""
    answer = sign_in.browser.get("/signin/oidc/callback?error=x&error_description=Call+0800+EVIL&state=y")
    assert "started too long ago, in another browser" in refusal(answer, 400)
    assert b"EVIL" not in answer.content


def test_two_first_sign_ins_at_the_same_time_succeed(sign_in: SignIn, settings: Any) -> None:
    """The one that finds the identity taken starts again."""

    def other_request(sender: Any, **arguments: Any) -> None:
        post_save.disconnect(other_request, sender=User)
        user = User.objects.create_user("other")
        ExternalIdentity.objects.create(user=user, issuer=settings.NSQ_OIDC.issuer, subject="s-ana")

    callback = sign_in.choose(sign_in.start(), "s-ana")
    post_save.connect(other_request, sender=User)
    try:
        assert sign_in.browser.get(callback).status_code == 302
    finally:
        post_save.disconnect(other_request, sender=User)
    assert ExternalIdentity.objects.get().user.username == sign_in.me["username"]


def test_a_subject_that_is_too_long_is_refused(sign_in: SignIn) -> None:
    assert "the identity provider's token names no valid subject" in refusal(sign_in.run("s" * 256), 403)


def test_a_sign_in_that_is_not_completed_is_forgotten_after_an_hour(sign_in: SignIn) -> None:
    """Anybody can start one; a completed one lasts as long as every session."""
    page = sign_in.start()
    assert Session.objects.get().expire_date <= timezone.now() + timedelta(hours=1)
    sign_in.browser.get(sign_in.choose(page, "s-ana"))
    assert Session.objects.get().expire_date > timezone.now() + timedelta(days=1)


# ---- beside sign-in by a proxy's header


def test_the_header_signs_in_to_no_account_of_the_provider(sign_in: SignIn, nsqadmin_settings: Any) -> None:
    """The proxy and the provider may know two people by one name."""
    sign_in.run("s-ana")
    nsqadmin_settings(header_sign_in=True)
    assert Client().get("/api/v1/me", headers={"X-Forwarded-User": "ana"}).status_code == 401
    entry = AuditEntry.objects.get(action="sign-in", outcome="refused")
    assert (entry.subject, entry.detail) == (
        "header naming ana",
        "the account of this name signs in with the identity provider",
    )


def test_a_name_that_the_settings_give_a_role_is_not_taken(sign_in: SignIn, nsqadmin_settings: Any) -> None:
    """It belongs to the person whom the proxy knows by it, also before their first sign-in."""
    nsqadmin_settings(admin_user=("ana",))
    sign_in.run("s-ana")
    assert User.objects.get().username == "ana-2"


def test_the_settings_of_the_header_raise_no_role_of_the_provider(
    sign_in: SignIn, provider: Any, nsqadmin_settings: Any
) -> None:
    """A token of an account that was an admin has the role that the provider gives now."""
    sign_in.run("s-ana")
    token = create_token(user=User.objects.get(username="ana"), name="script")
    nsqadmin_settings(admin_user=("ana",))
    provider(roles=(("nsq-admins", "viewer"),))
    sign_in.run("s-ana")
    me = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {token}"}).json()
    assert (me["username"], me["role"]) == ("ana", "viewer")


# ---- answers that are refused


def test_a_token_for_another_nonce_is_refused(sign_in: SignIn) -> None:
    """An attacker's token, of a sign-in that this browser did not start."""
    address, _, query = sign_in.start().partition("?")
    changed = {name: values[0] for name, values in parse_qs(query).items()} | {"nonce": "another"}
    answer = sign_in.browser.get(sign_in.choose(f"{address}?{urlencode(changed)}", "s-ana"))
    assert "The identity provider's token is invalid: " in refusal(answer, 502)


def config(**changes: Any) -> Callable[..., Any]:
    """A provider's signing that differs in these values."""
    original = provider_app.OpenIDCode.get_jwt_config
    return lambda self, grant, client=None: original(self, grant, client) | changes


@pytest.mark.parametrize(
    ("signing", "message"),
    [
        (config(aud=["another-client"]), "The identity provider's token is invalid: "),
        (config(iss="https://evil.example"), "The identity provider's token is invalid: "),
        (config(exp=-3600), "The identity provider's token is not valid now: its clock"),
        (config(alg="HS256", key="secret" * 8), "The identity provider's "),
    ],
    ids=["audience", "issuer", "clock", "algorithm"],
)
def test_an_invalid_token_is_refused(sign_in: SignIn, monkeypatch: Any, signing: Any, message: str) -> None:
    monkeypatch.setattr(provider_app.OpenIDCode, "get_jwt_config", signing)
    assert message in refusal(sign_in.run("s-ana"), 502)
    assert not User.objects.exists()


def test_a_clock_that_differs_by_half_a_minute_is_tolerated(sign_in: SignIn, monkeypatch: Any) -> None:
    monkeypatch.setattr(provider_app.OpenIDCode, "get_jwt_config", config(exp=-30))
    assert sign_in.run("s-ana").status_code == 302


def test_a_provider_that_does_not_answer_is_reported(settings: Any, redis: Any) -> None:
    """The web process's other pages are not affected."""
    settings.NSQ_OIDC = IdentityProvider(issuer="http://127.0.0.1:9", client_id="nsq")
    answer = Client().get("/signin/oidc")
    assert refusal(answer, 502) == "The identity provider does not answer. Try again later."
    assert Client().get("/ping").status_code == 200


@pytest.fixture
def metadata() -> Iterator[dict[str, Any]]:
    """The metadata that a provider serves, with its own address as the issuer; a test changes it."""
    document: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        document |= {"issuer": url, "authorization_endpoint": f"{url}/authorize"}
        yield document
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("issuer", ["https://other.example", 7, None])
def test_metadata_of_another_issuer_is_refused_and_read_again(
    metadata: dict[str, Any], settings: Any, redis: Any, issuer: Any
) -> None:
    """Once the provider is mended, sign-in works without a restart."""
    own = metadata["issuer"]
    settings.NSQ_OIDC = IdentityProvider(issuer=own, client_id="nsq")
    metadata["issuer"] = issuer
    message = f"The identity provider's answer is invalid: its metadata is of the issuer '{issuer}'."
    assert refusal(Client().get("/signin/oidc"), 502) == message
    metadata["issuer"] = own
    assert Client().get("/signin/oidc").status_code == 302


def test_attempts_of_an_address_are_limited(settings: Any, redis: Any) -> None:
    settings.NSQ_OIDC = IdentityProvider(issuer="http://127.0.0.1:9", client_id="nsq")
    client = Client()
    statuses = [client.get("/signin/oidc/callback?error=access_denied").status_code for _ in range(61)]
    assert statuses[-1] == 429
    assert 429 not in statuses[:60]


def test_signing_out_leads_to_the_provider(sign_in: SignIn) -> None:
    """Which leads back to the sign-in page."""
    sign_in.run("s-ana")
    url = urlsplit(sign_in.me["sign_out_url"])
    assert url.path == "/oauth2/end_session"
    assert parse_qs(url.query)["post_logout_redirect_uri"] == ["http://testserver/signin"]
    assert http_get(sign_in.me["sign_out_url"], trust_env=False).status_code == 200


def test_an_account_of_the_provider_gets_no_password(sign_in: SignIn) -> None:
    """With one, it could sign in after the provider has removed it."""
    sign_in.run("s-ana")
    headers = {"X-CSRFToken": sign_in.me["csrf_token"]}
    body = '{"new_password": "a long way to Tipperary"}'
    answer = sign_in.browser.put("/api/v1/account/password", body, content_type="application/json", headers=headers)
    assert answer.status_code == 422
    assert "it signs in with the identity provider" in answer.json()["message"]


def test_sign_in_with_a_password_is_switched_off_and_links_still_work(
    provider: Any, settings: Any, account: Any, browser: Any
) -> None:
    """An administrator's way in when the provider is down."""
    settings.NSQ_LOCAL_SIGN_IN = False
    user = account("admin", "ada")
    refused = browser().sign_in("ada")
    assert refused.status_code == 403
    assert "switched off" in refused.json()["message"]
    link = Client()
    path = one_time_link(user)
    assert link.post(path).status_code == 302
    assert link.get("/api/v1/me").json()["username"] == "ada"


def test_the_sign_in_page_offers_what_is_configured(provider: Any, settings: Any) -> None:
    settings.NSQ_LOCAL_SIGN_IN = False
    page = Client().get("/signin", headers={"Accept": "text/html"}).content.decode()
    assert '<meta name="identity-provider" content="single sign-on" />' in page
    assert '<meta name="password-sign-in" content="off" />' in page


def test_without_a_provider_there_is_no_such_page(redis: Any) -> None:
    assert Client().get("/signin/oidc").status_code == 404
    assert Client().get("/signin/oidc/callback").status_code == 404


@pytest.mark.parametrize("after", ["//evil.example/", "https://evil.example/", "/\\evil.example"])
def test_signing_in_leads_to_no_other_site(sign_in: SignIn, after: str) -> None:
    assert sign_in.run("s-ana", after)["Location"] == "/"


def test_an_issuer_requires_a_client() -> None:
    with pytest.raises(InvalidVariable, match=r"^NSQ_OIDC_CLIENT_ID: is required with NSQ_OIDC_ISSUER$"):
        identity_provider({"NSQ_OIDC_ISSUER": "https://idp.example.com"})


def test_roles_are_mapped_from_values_that_contain_equals_signs() -> None:
    """The last one separates the role."""
    environ = {"NSQ_OIDC_ROLES": "cn=nsq-admins=admin, staff=viewer"}
    assert identity_provider(environ).roles == (("cn=nsq-admins", "admin"), ("staff", "viewer"))


def test_groups_give_roles_in_single_clusters(settings: Any) -> None:
    """A value with a cluster gives the role there only; in it, the higher of both roles counts."""
    roles = {"NSQ_OIDC_ROLES": "staff=viewer,berlin-ops=operator@berlin,berlin=viewer@berlin"}
    client = {"NSQ_OIDC_ISSUER": "https://idp.example.com", "NSQ_OIDC_CLIENT_ID": "nsq"}
    provider = identity_provider(roles | client)

    def given(*groups: str) -> tuple[str, bool, Any]:
        person = person_of({"iss": "https://idp.example.com", "sub": "s", "groups": [*groups]}, provider)
        return person.role.value, person.everywhere, person.cluster_roles

    operator = {"berlin": {"role": "operator", "topic_patterns": []}}
    assert given("staff") == ("viewer", True, {})
    assert given("staff", "berlin-ops", "berlin") == ("viewer", True, operator)
    assert given("berlin-ops") == ("viewer", False, operator)
    with pytest.raises(NoAccess):
        given("others")
