"""nsqadmin's flags, and our own flags for access control."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from nsqcluster.addresses import base_url
from nsqcluster.tls import UnusableFile, tls_context
from nsqdaemon.logs import LogLevel
from nsqdaemon.node_http import HTTPTimeouts, NodeTLSSettings
from nsqdaemon.settings import of_environment, setting, variables
from nsqdaemon.variable import InvalidVariable
from nsqplatform.accounts.networks import Network, networks
from nsqplatform.destinations import Destinations
from nsqwire.durations import format_duration, nanoseconds

PROGRAM = "nsqadmin"
ROLES = ("none", "viewer", "operator", "admin")


@dataclass(frozen=True, kw_only=True)
class AdminSettings(HTTPTimeouts, NodeTLSSettings, env="NSQADMIN_"):
    """Flags, file keys and defaults are nsqadmin 1.3.0's; those declared from ``admin_user`` on are ours."""

    config: str = setting("", "Path to a TOML file with settings.", file=False)
    version: bool = setting(False, "Print the version and exit.", file=False)
    verbose: bool = setting(False, "No effect.", file=False, hidden=True)
    log_level: LogLevel = setting("info", "Lowest level to log: debug, info, warn, error or fatal.")
    log_prefix: str = setting("[nsqadmin] ", "Prefix of each log line.")
    http_address: str = setting("0.0.0.0:4171", "host:port to listen on.")
    base_path: str = setting("/", "Path below which everything is served, behind a proxy.")
    dev_static_dir: str = setting("", "Folder with a built web app to serve in place of the included one.")
    lookupd_http_address: tuple[str, ...] = setting(
        (), "host:port of an nsqlookupd; may be given several times.", key="nsqlookupd_http_addresses"
    )
    nsqd_http_address: tuple[str, ...] = setting(
        (),
        "host:port of an nsqd, for clusters without nsqlookupd; may be given several times.",
        key="nsqd_http_addresses",
    )
    graphite_url: str = setting("", "Graphite's URL; the pages then link to its graphs.")
    proxy_graphite: bool = setting(False, "Proxy /render to graphite, for browsers that cannot reach it.")
    statsd_prefix: str = setting("nsq.%s", "The nsqd's --statsd-prefix; %s becomes the node.")
    statsd_counter_format: str = setting("stats.counters.%s.count", "How statsd names counters in graphite.")
    statsd_gauge_format: str = setting("stats.gauges.%s", "How statsd names gauges in graphite.")
    statsd_interval: timedelta = setting("60s", "The nsqd's --statsd-interval.", min="1s")
    notification_http_endpoint: str = setting("", "URL that each action is POSTed to, as JSON.")
    allow_config_from_cidr: str = setting("127.0.0.1/8", "Network that may use /config; empty for any.")
    acl_http_header: str = setting("X-Forwarded-User", "Header in which a proxy names its signed-in user.")
    admin_user: tuple[str, ...] = setting(
        (), "User of that header who is an admin; enables sign-in by header.", key="admin_users"
    )
    operator_user: tuple[str, ...] = setting(
        (), "User of that header who is an operator; enables sign-in by header.", key="operator_users"
    )
    header_sign_in: bool = setting(
        False, "Trust that header even if no admin or operator is named here; roles are then set on the People page."
    )
    header_sign_out_url: str = setting(
        "",
        "URL to open after signing out a user of that header, such as /oauth2/sign_out, to end the proxy's session.",
    )
    header_role: str = setting("viewer", "Role of other users of that header; none refuses them.", choices=ROLES)
    trusted_proxy_cidr: tuple[str, ...] = setting(
        ("127.0.0.1/8", "::1/128"),
        "Network from which the header is trusted; may be given several times.",
        key="trusted_proxy_cidrs",
    )
    message_role: str = setting(
        "operator", "Lowest role that may read messages, whose bodies may be confidential.", choices=ROLES[1:]
    )
    script_role: str = setting(
        "none",
        "Role of requests to nsqadmin's /api and /config without sign-in; scripts for nsqadmin need admin.",
        choices=ROLES,
    )
    script_cidr: tuple[str, ...] = setting(
        ("127.0.0.1/8", "::1/128"),
        "Network to which --script-role applies; may be given several times.",
        key="script_cidrs",
    )
    audit_retention: timedelta = setting("8760h", "Time for which audit entries are kept; 0 for ever.", min="0s")

    hsts_max_age: timedelta = setting(
        "24h",
        "Time for which browsers that have opened a page use HTTPS only, for every port of its host; needs NSQ_HTTPS; "
        "0 to leave it out.",
        min="0s",
    )
    webhook_allow: tuple[str, ...] = setting(
        (),
        "Network or host name (*.example.org) that webhooks may be sent to, even if it is not public or is in "
        "--webhook-deny; may be given several times.",
    )
    webhook_deny: tuple[str, ...] = setting(
        (), "Network or host name that webhooks are not sent to; may be given several times."
    )

    @property
    def base(self) -> str:
        """``base_path`` without its trailing slash: empty, or ``/some/where``."""
        clean = posixpath.normpath("/" + self.base_path)
        return "" if clean.strip("/") == "" else "/" + clean.strip("/")

    @property
    def trusts_header(self) -> bool:
        return self.header_sign_in or bool(self.admin_user or self.operator_user)

    @property
    def config_networks(self) -> tuple[Network, ...] | None:
        """The networks that may use ``/config``; None for any."""
        cidr = self.allow_config_from_cidr
        return networks("allow-config-from-cidr", [cidr]) if cidr else None

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        return networks("trusted-proxy-cidr", self.trusted_proxy_cidr)

    @property
    def script_networks(self) -> tuple[Network, ...]:
        return networks("script-cidr", self.script_cidr)

    @property
    def allowed_webhooks(self) -> Destinations:
        return Destinations.parse("webhook-allow", self.webhook_allow)

    @property
    def denied_webhooks(self) -> Destinations:
        return Destinations.parse("webhook-deny", self.webhook_deny)

    def environment(self) -> dict[str, str]:
        """The same settings as variables, for the processes that ``nsqadmin`` starts."""
        return {variable: as_text(getattr(self, name)) for variable, name in variables(type(self)).items()}


def from_environment(environ: Mapping[str, str] = os.environ) -> AdminSettings:
    """The settings of a process of the platform. Raises InvalidVariable."""
    for variable in variables(AdminSettings):
        if not is_utf_8(environ.get(variable, "")):
            raise InvalidVariable(variable, f"{environ[variable]!r} is not UTF-8")
    settings = of_environment(AdminSettings, environ)
    try:
        check(settings)
    except ValueError as error:
        raise _of_variables(str(error)) from None
    return settings


_FLAG = re.compile(r"--([a-z][a-z-]+)")


def _of_variables(text: str) -> InvalidVariable:
    """The error for a value that is not accepted, with the variables in place of the flags that ``text`` names."""
    first = next(_FLAG.finditer(text))
    in_variables = _FLAG.sub(_variable_of, text)
    name = _variable_of(first)
    return InvalidVariable(name, in_variables.removeprefix(name).lstrip(": "))


def _variable_of(flag: re.Match[str]) -> str:
    return AdminSettings.ENV_PREFIX + flag[1].upper().replace("-", "_")


def is_utf_8(text: str) -> bool:
    """Whether a variable's bytes were UTF-8: Python represents others as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return format_duration(nanoseconds(value))
    if isinstance(value, LogLevel):
        return value.word
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def check(settings: AdminSettings) -> None:
    """Check the values that have a form, so that an invalid one is an error at startup.

    Raises ValueError whose text names the flag: ``--graphite-url: 'x' is not an http:// or https:// URL``.
    """
    settings.check_timeouts()
    check_tls_files(settings)
    check_urls(settings)
    check_addresses(settings)
    if settings.dev_static_dir and not os.path.isdir(settings.dev_static_dir):
        raise ValueError(f"--dev-static-dir ({settings.dev_static_dir}) is not a directory")
    if _HEADER.fullmatch(settings.acl_http_header) is None:
        raise ValueError(f"--acl-http-header: {settings.acl_http_header!r} is not the name of a header")
    _ = settings.config_networks, settings.proxy_networks, settings.script_networks
    _ = settings.allowed_webhooks, settings.denied_webhooks


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def check_urls(settings: AdminSettings) -> None:
    for flag, url in (
        ("graphite-url", settings.graphite_url),
        ("notification-http-endpoint", settings.notification_http_endpoint),
    ):
        if url and not is_http_url(url):
            raise ValueError(f"--{flag}: {url!r} is not an http:// or https:// URL")
    page = settings.header_sign_out_url
    if page and not page.startswith("/") and not is_http_url(page):
        raise ValueError(f"--header-sign-out-url: {page!r} is neither a path nor an http:// or https:// URL")


def is_http_url(text: str) -> bool:
    try:
        return bool(base_url(text)) and text.startswith(("http://", "https://"))
    except ValueError:
        return False


def check_addresses(settings: AdminSettings) -> None:
    for flag, addresses in (
        ("lookupd-http-address", settings.lookupd_http_address),
        ("nsqd-http-address", settings.nsqd_http_address),
    ):
        for address in addresses:
            try:
                base_url(address)
            except ValueError as error:
                raise ValueError(f"--{flag}: {error}") from None


def check_tls_files(settings: AdminSettings) -> None:
    """Read the files of ``--http-client-tls-*``."""
    settings.check_tls()
    if settings.http_client_tls_root_ca_file or settings.http_client_tls_cert:
        try:
            tls_context(
                root_ca_file=settings.http_client_tls_root_ca_file,
                cert=settings.http_client_tls_cert,
                key=settings.http_client_tls_key,
            )
        except UnusableFile as error:
            raise ValueError(f"--http-client-tls-{error.kind}: {error}") from None
