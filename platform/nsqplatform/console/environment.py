"""The platform's environment variables, which are read once at startup. docs/settings-platform.md lists them."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from nsqanalytics.iceberg.catalog import CATALOG_VARIABLE, is_catalog
from nsqanalytics.iceberg.catalog import FORMS as FORMS_OF_CATALOGS
from nsqanalytics.master import FORMS, is_master
from nsqdaemon.default_ports import default_ports
from nsqdaemon.otlp import OTLPUnusable, check_endpoint
from nsqdaemon.variable import InvalidVariable
from nsqplatform.accounts.oidc.provider import ROLES, IdentityProvider, role_mapping, scopes
from nsqplatform.clusters.declaration import DEFAULT_ONLY, BadDeclaration, Declaration, clusters_of
from nsqplatform.console import variable
from nsqplatform.console.checkout import FRONTEND, default_home
from nsqplatform.console.mail import MailServer, mail_server
from nsqplatform.console.private_folder import make_private
from nsqplatform.console.variable import Variable

_ADDRESSES = "a list of host:port, separated by commas"
_DAYS = "a number of days from 2 to 10000"
_FLAG = "1, true, yes, 0, false or no"
_FOLDER = "a folder that can be created and written to"
_STORE = "a folder, or a URL of s3a, s3, gs, hdfs or abfs"


def private_folder(text: str) -> Path:
    path = Path(text).absolute()
    try:
        make_private(path)
    except OSError as error:
        raise unusable_home(path, error) from None
    return path


def clusters(text: str) -> tuple[Declaration, ...]:
    try:
        return clusters_of(Path(text).absolute())
    except BadDeclaration as error:
        raise InvalidVariable("NSQ_CLUSTERS", str(error)) from None


def otlp_endpoint(text: str) -> str:
    try:
        check_endpoint(text)
    except OTLPUnusable as error:
        raise InvalidVariable("NSQ_OTLP_ENDPOINT", str(error)) from None
    return text


def spark_master(text: str) -> str:
    if not is_master(text):
        raise ValueError(text)
    return text


def iceberg_catalog(text: str) -> str:
    if not is_catalog(text):
        raise ValueError(text)
    return text


HOME = Variable(
    "NSQ_HOME",
    private_folder,
    _FOLDER,
    "Folder of all data that has no other place below. In a checkout `var`, otherwise the user's data folder.",
)
DATABASE_URL = Variable(
    "DATABASE_URL",
    variable.database,
    "postgres://user:password@host:port/name or sqlite:///path",
    "The database of accounts, alerts, reports and the audit trail. SQLite is for one machine.",
    default="sqlite:///$NSQ_HOME/platform.sqlite3",
    has_password=True,
)
REDIS_URL = Variable(
    "REDIS_URL",
    variable.redis,
    "redis://user:password@host:port/number, rediss:// over TLS or unix:///path",
    "Redis, which carries the live figures between the processes. By default `nsq up` starts one.",
    default="unix://$NSQ_HOME/redis.sock",
    has_password=True,
)
CELERY_BROKER_URL = Variable(
    "CELERY_BROKER_URL",
    variable.celery_broker,
    "nsq://host:port, nsqs:// over TLS, redis://, rediss:// over TLS or redis+socket:///path",
    "Queues of reports and jobs, by default in `REDIS_URL`; they can be [on NSQ](celery.md#the-platform-on-nsq).",
    has_password=True,
)
ARCHIVE = Variable(
    "NSQ_ARCHIVE",
    variable.store,
    _STORE,
    "Where the collector writes the [archive](architecture.md#the-archive), and reports read it.",
    default="$NSQ_HOME/archive",
)
REPORTS = Variable(
    "NSQ_REPORTS",
    variable.store,
    _STORE,
    "Where reports write their results.",
    default="$NSQ_HOME/reports",
)
ICEBERG_CATALOG = Variable(
    CATALOG_VARIABLE,
    iceberg_catalog,
    FORMS_OF_CATALOGS,
    "Catalog in which the archive's tables are registered ([Iceberg](analytics.md#iceberg-tables)). By default none.",
    has_password=True,
)
HISTORY = Variable(
    "NSQ_HISTORY",
    variable.folder,
    _FOLDER,
    "Folder of the charts' history.",
    default="$NSQ_HOME/history",
)
HISTORY_10S_DAYS = Variable(
    "NSQ_HISTORY_10S_DAYS",
    variable.days,
    _DAYS,
    "Days for which figures in steps of ten seconds are kept.",
    default="2",
)
HISTORY_1M_DAYS = Variable(
    "NSQ_HISTORY_1M_DAYS",
    variable.days,
    _DAYS,
    "Days for which figures in steps of a minute are kept.",
    default="40",
)
HISTORY_1H_DAYS = Variable(
    "NSQ_HISTORY_1H_DAYS",
    variable.days,
    _DAYS,
    "Days for which figures in steps of an hour are kept.",
    default="460",
)
SPARK_MASTER = Variable(
    "SPARK_MASTER",
    spark_master,
    f"the address of a Spark master: {FORMS}",
    "Where reports run ([engine](analytics.md#engine)). By default in a local Spark.",
)
SPARK_IDLE_S = Variable(
    "NSQ_SPARK_IDLE_S",
    variable.idle_seconds,
    "a number of seconds from 0 to 86400",
    "Seconds for which a worker keeps Spark without a report; 0: [each report has a process of its own]"
    "(analytics.md#the-session-of-a-worker).",
    default="600",
)
SECRET_KEY = Variable(
    "NSQ_SECRET_KEY",
    str,
    "UTF-8",
    "Signs sessions and links. By default a key is created in `$NSQ_HOME/secret_key`; several machines need the same.",
    is_secret=True,
)
DEBUG = Variable(
    "NSQ_DEBUG",
    variable.flag,
    _FLAG,
    "Log everything, and show tracebacks in answers. Not for production.",
    default="0",
)
HTTPS = Variable(
    "NSQ_HTTPS",
    variable.flag,
    _FLAG,
    "A proxy terminates TLS and sets `X-Forwarded-Proto`; cookies are marked secure.",
    default="0",
)
ALLOWED_HOSTS = Variable(
    "NSQ_ALLOWED_HOSTS",
    variable.hosts,
    "a list of host names, of .domains, or *, separated by commas",
    "Host names under which the pages are served, besides localhost. `nsq up` on another address than loopback adds "
    "this machine's.",
)
SITE = Variable(
    "NSQ_SITE",
    variable.site,
    "a base URL such as https://nsq.example.org",
    "Base URL of links in notifications and of sign-in links.",
)
OTLP_ENDPOINT = Variable(
    "NSQ_OTLP_ENDPOINT",
    otlp_endpoint,
    "the base URL of an OTLP/HTTP receiver",
    "Where the collector sends the cluster's [metrics by OTLP](tracing.md#metrics-by-otlp). By default nowhere.",
)
OTLP_INTERVAL_S = Variable(
    "NSQ_OTLP_INTERVAL_S",
    variable.seconds,
    "a number of seconds from 1 to 3600",
    "Seconds between two of these.",
    default="60",
)
LOCAL_SIGN_IN = Variable(
    "NSQ_LOCAL_SIGN_IN",
    variable.flag,
    _FLAG,
    "Whether people sign in with a password.",
    default="1",
)
OIDC_ISSUER = Variable(
    "NSQ_OIDC_ISSUER",
    variable.site,
    "the http or https URL of an OpenID Connect provider",
    "Issuer of the [identity provider](access.md#sign-in-with-an-identity-provider). By default there is none.",
)
OIDC_CLIENT_ID = Variable(
    "NSQ_OIDC_CLIENT_ID",
    str,
    "UTF-8",
    "The platform's id at the provider.",
)
OIDC_CLIENT_SECRET = Variable(
    "NSQ_OIDC_CLIENT_SECRET",
    str,
    "UTF-8",
    "Its secret. Without one, the client is public, and PKCE alone protects the code.",
    is_secret=True,
)
OIDC_NAME = Variable(
    "NSQ_OIDC_NAME",
    str,
    "UTF-8",
    "The provider's name on the sign-in button.",
    default="single sign-on",
)
OIDC_SCOPES = Variable(
    "NSQ_OIDC_SCOPES",
    scopes,
    "a list of scopes with openid, separated by spaces",
    "Scopes that are requested.",
    default="openid profile email",
)
OIDC_USERNAME_CLAIM = Variable(
    "NSQ_OIDC_USERNAME_CLAIM",
    str,
    "UTF-8",
    "The claim with the name of a new account.",
    default="preferred_username",
)
OIDC_ROLE_CLAIM = Variable(
    "NSQ_OIDC_ROLE_CLAIM",
    str,
    "UTF-8",
    "The claim with a person's groups; `realm_access.roles` is the claim `roles` inside `realm_access`.",
    default="groups",
)
OIDC_ROLES = Variable(
    "NSQ_OIDC_ROLES",
    role_mapping,
    f"a list of VALUE=ROLE, separated by commas, with the roles {', '.join(ROLES)}",
    "The role of each group; the highest counts.",
)
OIDC_DEFAULT_ROLE = Variable(
    "NSQ_OIDC_DEFAULT_ROLE",
    variable.one_of("none", *ROLES),
    f"none, {', '.join(ROLES)}",
    "The role of everybody else; `none`: no access.",
    default="none",
)
OIDC_TOPICS_CLAIM = Variable(
    "NSQ_OIDC_TOPICS_CLAIM",
    str,
    "UTF-8",
    "The claim with an operator's topic patterns. By default, operators may act on all topics.",
)
EMAIL_URL = Variable(
    "NSQ_EMAIL_URL",
    mail_server,
    "smtp://, smtp+tls:// or smtps://user:password@host:port",
    "Mail server for notifications; `smtp+tls` starts TLS after connecting, `smtps` at once.",
    default="smtp://localhost:25",
    has_password=True,
)
EMAIL_FROM = Variable(
    "NSQ_EMAIL_FROM",
    variable.sender,
    "an e-mail address such as nsq@example.org",
    "Sender of notifications.",
    default="nsq@localhost",
)
NSQD_HTTP_ADDRESSES = Variable(
    "NSQD_HTTP_ADDRESSES",
    variable.addresses,
    _ADDRESSES,
    "nsqds that are shown without a registry.",
)
NSQLOOKUPD_HTTP_ADDRESSES = Variable(
    "NSQLOOKUPD_HTTP_ADDRESSES",
    variable.addresses,
    _ADDRESSES,
    "Registries. By default `127.0.0.1:4161`, or none if `NSQD_HTTP_ADDRESSES` is set.",
)
CLUSTERS = Variable(
    "NSQ_CLUSTERS",
    clusters,
    "a TOML file that declares clusters",
    "Declares [further clusters](deployment.md#several-clusters). By default there is one.",
)
FRONTEND_DIST = Variable(
    "NSQ_FRONTEND_DIST",
    variable.existing_folder,
    "a folder with a built front end",
    "The built web app. By default the included one, in a checkout `frontend/dist`.",
)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The settings of one process. Paths are absolute; addresses are ``host:port`` of HTTP listeners."""

    home: Path
    database_url: str
    redis_url: str
    celery_broker_url: str
    archive: str
    iceberg_catalog: str
    """The URI of the Iceberg catalog in which the archives are registered; empty if there is none."""
    reports: str
    history: Path
    history_days: Mapping[str, int]
    """Days for which the files of each grain of the history are kept."""
    spark_master: str
    spark_idle_s: int
    """How long a worker keeps a Spark session without reports; 0: each report has a process of its own."""
    secret_key: str
    debug: bool
    https: bool
    allowed_hosts: tuple[str, ...]
    site: str
    otlp_endpoint: str
    otlp_interval_s: int
    oidc: IdentityProvider
    local_sign_in: bool
    """Whether people sign in with a password."""
    mail: MailServer
    mail_from: str
    nsqd_http_addresses: tuple[str, ...]
    lookupd_http_addresses: tuple[str, ...]
    clusters: tuple[Declaration, ...]
    """The default cluster first, whose addresses are those above."""
    frontend_dist: Path

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Environment:
        """Read the variables; the defaults suit a laptop with no configuration.

        Creates ``$NSQ_HOME``, makes it private and, unless a key is given, creates ``$NSQ_HOME/secret_key``.
        Raises InvalidVariable.
        """
        home = HOME.read({HOME.name: str(default_home(environ))}, default_home(environ))
        nsqd = NSQD_HTTP_ADDRESSES.read(environ, ())
        has_nodes = nsqd or NSQLOOKUPD_HTTP_ADDRESSES.name in environ
        no_registry = () if has_nodes else (f"127.0.0.1:{default_ports(environ).lookupd_http}",)
        redis_url = REDIS_URL.read(environ, f"unix://{home / 'redis.sock'}")
        return cls(
            home=home,
            database_url=DATABASE_URL.read(environ, f"sqlite:///{home / 'platform.sqlite3'}"),
            redis_url=redis_url,
            celery_broker_url=CELERY_BROKER_URL.read(environ, as_celery_broker(redis_url)),
            archive=ARCHIVE.read(environ, str(home / "archive")),
            iceberg_catalog=ICEBERG_CATALOG.read(environ, ""),
            reports=REPORTS.read(environ, str(home / "reports")),
            history=HISTORY.read(environ, home / "history"),
            history_days={
                "10s": HISTORY_10S_DAYS.read(environ, 2),
                "1m": HISTORY_1M_DAYS.read(environ, 40),
                "1h": HISTORY_1H_DAYS.read(environ, 460),
            },
            spark_master=SPARK_MASTER.read(environ, ""),
            spark_idle_s=SPARK_IDLE_S.read(environ, 600),
            secret_key=SECRET_KEY.read(environ, "") or secret_key_of(home),
            debug=DEBUG.read(environ, False),
            https=HTTPS.read(environ, False),
            allowed_hosts=("localhost", "127.0.0.1", "[::1]", *ALLOWED_HOSTS.read(environ, ())),
            site=SITE.read(environ, ""),
            otlp_endpoint=OTLP_ENDPOINT.read(environ, ""),
            otlp_interval_s=OTLP_INTERVAL_S.read(environ, 60),
            oidc=identity_provider(environ),
            local_sign_in=LOCAL_SIGN_IN.read(environ, True),
            mail=EMAIL_URL.read(environ, MailServer()),
            mail_from=EMAIL_FROM.read(environ, "nsq@localhost"),
            nsqd_http_addresses=nsqd,
            lookupd_http_addresses=NSQLOOKUPD_HTTP_ADDRESSES.read(environ, no_registry),
            clusters=CLUSTERS.read(environ, DEFAULT_ONLY),
            frontend_dist=FRONTEND_DIST.read(environ, FRONTEND),
        )


VARIABLES = tuple(each for each in list(globals().values()) if isinstance(each, Variable))
"""Every variable of the platform, except the ``NSQADMIN_…`` of :mod:`nsqplatform.nsqadmin.settings`."""


def as_celery_broker(redis_url: str) -> str:
    """Return the URL with Celery's own scheme for a Redis on a Unix socket."""
    return f"redis+socket://{urlsplit(redis_url).path}" if redis_url.startswith("unix:") else redis_url


def identity_provider(environ: Mapping[str, str]) -> IdentityProvider:
    """The provider of the ``NSQ_OIDC_`` variables. Raises InvalidVariable, also for an issuer without a client."""
    off = IdentityProvider()
    issuer, client_id = OIDC_ISSUER.read(environ, ""), OIDC_CLIENT_ID.read(environ, "")
    if issuer and not client_id:
        raise InvalidVariable(OIDC_CLIENT_ID.name, f"is required with {OIDC_ISSUER.name}")
    return IdentityProvider(
        issuer=issuer,
        client_id=client_id,
        client_secret=OIDC_CLIENT_SECRET.read(environ, ""),
        name=OIDC_NAME.read(environ, off.name),
        scopes=OIDC_SCOPES.read(environ, off.scopes),
        username_claim=OIDC_USERNAME_CLAIM.read(environ, off.username_claim),
        role_claim=OIDC_ROLE_CLAIM.read(environ, off.role_claim),
        roles=OIDC_ROLES.read(environ, off.roles),
        default_role=OIDC_DEFAULT_ROLE.read(environ, off.default_role),
        topics_claim=OIDC_TOPICS_CLAIM.read(environ, off.topics_claim),
    )


def secret_key_of(home: Path) -> str:
    """Return the key that is kept in ``home``. Raises InvalidVariable if it cannot be written or read."""
    try:
        return kept_secret(home / "secret_key")
    except OSError as error:
        raise unusable_home(home, error) from None


def unusable_home(home: Path, error: OSError) -> InvalidVariable:
    """The error for a data folder that cannot be created, read or written, with what to do."""
    what = f"{str(home)!r} is not {HOME.accepts}: {error.strerror}"
    where = f" ({error.filename})" if error.filename and Path(os.fsdecode(error.filename)) != home else ""
    return InvalidVariable(HOME.name, f"{what}{where}; make it this user's, or set {HOME.name} to another folder")


def kept_secret(path: Path) -> str:
    """Return the key in the file ``path``; create it (mode 0600) if it does not exist.

    Several processes may start at once. The first to link its file wins, and none reads an incomplete key.
    """
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.") as draft:  # has mode 0600
            draft.write(secrets.token_urlsafe(48))
            draft.flush()
            with contextlib.suppress(FileExistsError):
                os.link(draft.name, path)
    return path.read_text().strip()
