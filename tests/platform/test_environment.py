"""Environment variables of the platform with values that are not accepted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsqdaemon.settings import variables
from nsqdaemon.variable import InvalidVariable
from nsqplatform.console.environment import VARIABLES, Environment
from nsqplatform.console.environment_page import markdown
from nsqplatform.nsqadmin.settings import AdminSettings, from_environment
from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S

NOT_UTF_8 = "\udcff"
"""Python's form of the byte FF in an environment variable."""

PLATFORM = {
    "NSQ_HOME": ["/proc/nope", "/dev/null/nope", NOT_UTF_8],
    "DATABASE_URL": ["foo://x", "nonsense", "postgres://h:port/name", "mysql://h/name"],
    "REDIS_URL": ["nonsense", "http://h", "redis://h:port", "redis://h/name", "unix://"],
    "CELERY_BROKER_URL": ["nonsense", "amqp://h", "nsq://", "nsq://h:port", "nsq://a;redis://b", "redis://h/name"],
    "NSQ_ARCHIVE": ["foo://x", "/dev/null/archive"],
    "NSQ_ICEBERG_CATALOG": [
        "foo://x",
        "catalog.sqlite3",
        "sqlite:///",
        "postgres://h:port/name",
        "mysql://h/name",
        "http://",
    ],
    "NSQ_REPORTS": ["foo://x", "/dev/null/reports"],
    "NSQ_HISTORY": ["/proc/nope", "/dev/null/nope"],
    "NSQ_HISTORY_10S_DAYS": ["abc", "1", "10001", "2.5", "-3", "²"],
    "NSQ_HISTORY_1M_DAYS": ["abc"],
    "NSQ_HISTORY_1H_DAYS": ["abc"],
    "NSQ_OTLP_ENDPOINT": ["127.0.0.1:4318", "grpc://h:4317", "http://a b:1"],
    "NSQ_OTLP_INTERVAL_S": ["abc", "0", "3601", "-5"],
    "NSQ_SPARK_IDLE_S": ["abc", "-1", "86401", "1.5"],
    "SPARK_MASTER": ["10.0.0.1:7077", "sparkk://h:1"],
    "NSQ_SECRET_KEY": [NOT_UTF_8],
    "NSQ_DEBUG": ["maybe", "2"],
    "NSQ_HTTPS": ["maybe"],
    "NSQ_ALLOWED_HOSTS": ["https://nsq.example.org", "a b"],
    "NSQ_SITE": ["nsq.example.org", "ftp://nsq.example.org", "https://", "https://h:port"],
    "NSQ_LOCAL_SIGN_IN": ["maybe"],
    "NSQ_OIDC_ISSUER": ["id.example.org", "ftp://id.example.org"],
    "NSQ_OIDC_CLIENT_ID": [NOT_UTF_8],
    "NSQ_OIDC_CLIENT_SECRET": [NOT_UTF_8],
    "NSQ_OIDC_NAME": [NOT_UTF_8],
    "NSQ_OIDC_SCOPES": ["profile email"],
    "NSQ_OIDC_USERNAME_CLAIM": [NOT_UTF_8],
    "NSQ_OIDC_ROLE_CLAIM": [NOT_UTF_8],
    "NSQ_OIDC_ROLES": ["nsq-admins", "nsq-admins=king", "=admin"],
    "NSQ_OIDC_DEFAULT_ROLE": ["king"],
    "NSQ_OIDC_TOPICS_CLAIM": [NOT_UTF_8],
    "NSQ_EMAIL_URL": ["mail.example.org", "smtp://", "smtp://mail.example.org:many"],
    "NSQ_EMAIL_FROM": ["nobody", "a@", "a@b\n"],
    "NSQD_HTTP_ADDRESSES": ["nohost", "a:4151,b:x", "a:0", "a b:1"],
    "NSQLOOKUPD_HTTP_ADDRESSES": ["a:0", ":4161"],
    "NSQ_CLUSTERS": ["/nowhere/clusters.toml", "/dev/null/clusters.toml"],
    "NSQ_FRONTEND_DIST": ["/nowhere"],
}
NSQADMIN = {
    "NSQADMIN_LOG_LEVEL": ["loud"],
    "NSQADMIN_LOG_PREFIX": [NOT_UTF_8],
    "NSQADMIN_HTTP_ADDRESS": [NOT_UTF_8],
    "NSQADMIN_BASE_PATH": [NOT_UTF_8],
    "NSQADMIN_DEV_STATIC_DIR": ["/nowhere"],
    "NSQADMIN_LOOKUPD_HTTP_ADDRESS": ["nohost"],
    "NSQADMIN_NSQD_HTTP_ADDRESS": ["nohost"],
    "NSQADMIN_GRAPHITE_URL": ["graphite", "ftp://graphite"],
    "NSQADMIN_PROXY_GRAPHITE": ["maybe"],
    "NSQADMIN_STATSD_PREFIX": [NOT_UTF_8],
    "NSQADMIN_STATSD_COUNTER_FORMAT": [NOT_UTF_8],
    "NSQADMIN_STATSD_GAUGE_FORMAT": [NOT_UTF_8],
    "NSQADMIN_STATSD_INTERVAL": ["abc", "1ms"],
    "NSQADMIN_NOTIFICATION_HTTP_ENDPOINT": ["hooks"],
    "NSQADMIN_ALLOW_CONFIG_FROM_CIDR": ["10.0.0.0/99"],
    "NSQADMIN_ACL_HTTP_HEADER": ["X User", NOT_UTF_8],
    "NSQADMIN_ADMIN_USER": [NOT_UTF_8],
    "NSQADMIN_OPERATOR_USER": [NOT_UTF_8],
    "NSQADMIN_HEADER_SIGN_IN": ["maybe"],
    "NSQADMIN_HEADER_SIGN_OUT_URL": ["out", "javascript:alert(1)"],
    "NSQADMIN_HEADER_ROLE": ["king"],
    "NSQADMIN_TRUSTED_PROXY_CIDR": ["10.0.0.0/99"],
    "NSQADMIN_MESSAGE_ROLE": ["none", "king"],
    "NSQADMIN_SCRIPT_ROLE": ["king"],
    "NSQADMIN_SCRIPT_CIDR": ["10.0.0.0/99"],
    "NSQADMIN_AUDIT_RETENTION": ["abc", "-1s"],
    "NSQADMIN_HSTS_MAX_AGE": ["abc", "-1s"],
    "NSQADMIN_WEBHOOK_ALLOW": ["10.0.0.0/99"],
    "NSQADMIN_WEBHOOK_DENY": ["10.0.0.0/99"],
    "NSQADMIN_HTTP_CLIENT_CONNECT_TIMEOUT": ["abc", "0s"],
    "NSQADMIN_HTTP_CLIENT_REQUEST_TIMEOUT": ["abc", "0s"],
    "NSQADMIN_HTTP_CLIENT_TLS_INSECURE_SKIP_VERIFY": ["maybe"],
    "NSQADMIN_HTTP_CLIENT_TLS_ROOT_CA_FILE": ["/nowhere.pem", __file__],
    "NSQADMIN_HTTP_CLIENT_TLS_CERT": ["/nowhere.pem"],
    "NSQADMIN_HTTP_CLIENT_TLS_KEY": ["/nowhere.pem"],
}
SECRETS = {"NSQ_SECRET_KEY", "NSQ_OIDC_CLIENT_SECRET"}
"""Variables whose values no error shows."""
VALUES = [(name, value) for name, values in {**PLATFORM, **NSQADMIN}.items() for value in values]


def test_every_variable_has_a_value_in_this_test() -> None:
    """A variable that is added needs a value that it does not accept."""
    assert set(PLATFORM) == {each.name for each in VARIABLES}
    assert set(NSQADMIN) == set(variables(AdminSettings))


@pytest.mark.parametrize(("name", "value"), VALUES, ids=[f"{name}={value!a}" for name, value in VALUES])
def test_a_value_that_is_not_accepted_is_named_with_its_variable(tmp_path: Path, name: str, value: str) -> None:
    """In one line, as the error of the command that reads it."""
    environ = {"NSQ_HOME": str(tmp_path), name: value}
    with pytest.raises(InvalidVariable) as raised:
        (Environment.read if name in PLATFORM else from_environment)(environ)
    text = str(raised.value)
    relation = name in ("NSQADMIN_HTTP_CLIENT_TLS_CERT", "NSQADMIN_HTTP_CLIENT_TLS_KEY")  # each needs the other
    assert name in text if relation else text.startswith(f"{name}: ")
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert relation or (repr(value).strip("'") in text) is (name not in SECRETS)


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_not_shown_at_all(tmp_path: Path, name: str) -> None:
    """Not even the part of it that can be read."""
    with pytest.raises(InvalidVariable, match=f"^{name}: its value is not UTF-8$"):
        Environment.read({"NSQ_HOME": str(tmp_path), name: f"s3cret{NOT_UTF_8}"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "foo://nsq:p@ss@db/nsq"),
        ("REDIS_URL", "http://:p@ss@cache"),
        ("CELERY_BROKER_URL", "amqp://:p@ss@queue"),
        ("NSQ_EMAIL_URL", "mail://nsq:p@ss@mail"),
    ],
)
def test_a_password_in_a_value_is_not_shown(tmp_path: Path, name: str, value: str) -> None:
    """The rest of the URL is, to find it."""
    with pytest.raises(InvalidVariable) as raised:
        Environment.read({"NSQ_HOME": str(tmp_path), name: value})
    assert value.partition(":")[0] in str(raised.value)
    assert "p@ss" not in str(raised.value)
    assert "ss@" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgres://nsq:p%40ss@db:5432/nsq"),
        ("DATABASE_URL", "sqlite:////srv/nsq.sqlite3"),
        ("REDIS_URL", "redis://:p%40ss@cache:6379/2"),
        ("REDIS_URL", "rediss://cache"),
        ("REDIS_URL", "unix:///run/redis.sock?db=1"),
        ("CELERY_BROKER_URL", "nsq://:p%40ss@one:4150/platform;nsq://two"),
        ("CELERY_BROKER_URL", "nsqs://one;two:4150"),
        ("CELERY_BROKER_URL", "redis+socket:///run/redis.sock"),
        ("NSQ_ARCHIVE", "s3a://bucket/archive"),
        ("NSQ_ALLOWED_HOSTS", "nsq.example.org, .example.com,*,[::1]"),
        ("NSQ_SITE", "https://nsq.example.org:8443/nsq/"),
        ("NSQ_EMAIL_FROM", "NSQ <nsq@example.org>"),
        ("NSQLOOKUPD_HTTP_ADDRESSES", "a:4161, [::1]:4161,"),
        ("SPARK_MASTER", "local[*]"),
    ],
)
def test_values_of_every_accepted_form_are_read(tmp_path: Path, name: str, value: str) -> None:
    Environment.read({"NSQ_HOME": str(tmp_path), name: value})


@pytest.mark.parametrize("variable", [each for each in VARIABLES if each.default], ids=lambda each: each.name)
def test_a_documented_default_is_the_value_of_a_variable_that_is_not_set(tmp_path: Path, variable: Any) -> None:
    home = str(tmp_path / "home")
    environ = {"NSQ_HOME": home, "NSQ_SECRET_KEY": "k"}
    default = variable.default.replace("$NSQ_HOME", home)
    assert Environment.read(environ | {variable.name: default}) == Environment.read(environ)


def test_the_docs_list_all_variables() -> None:
    """docs/settings-platform.md contains the table of the declarations; ``make docs`` writes it."""
    assert (ROOT / "docs/settings-platform.md").read_text().endswith("\n\n" + markdown(VARIABLES))


@pytest.fixture
def nsq(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a subcommand with one variable; a new home unless that is the variable."""

    def run(command: list[str], name: str, value: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "nsq", *command],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NSQ_HOME": str(tmp_path / "var"), name: value},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    return run


@pytest.mark.parametrize(
    ("command", "name", "value"),
    [
        ("collector", "NSQ_HISTORY_10S_DAYS", "abc"),
        ("dispatcher", "NSQADMIN_WEBHOOK_ALLOW", "10.0.0.0/99"),
        ("signin-link", "DATABASE_URL", "foo://x"),
        ("web", "REDIS_URL", "nonsense"),
        ("worker", "NSQ_HOME", "/proc/nope"),
        ("beat", "NSQ_EMAIL_FROM", "nobody"),
        ("up", "NSQ_HOME", "/proc/nope"),
        ("up", "NSQ_HISTORY_10S_DAYS", "abc"),
        ("up", "NSQADMIN_LOG_LEVEL", "loud"),
    ],
)
def test_a_command_ends_with_the_variable_in_one_line(nsq, command: str, name: str, value: str) -> None:
    """On standard error, with status 2, before it listens or starts another process."""
    ended = nsq([command], name, value)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith(f"nsq {command}: {name}: '{value}' is n")  # not …, or neither … nor …
