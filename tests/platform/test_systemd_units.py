"""The units of systemd for machines without containers, which docs/deployment.md shows."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest

from nsqplatform.console.environment import Environment
from nsqplatform.console.nsq.services import PLATFORM
from nsqplatform.nsqadmin.settings import from_environment
from tests.harness.command import nsq

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"


def service(name: str) -> configparser.SectionProxy:
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string((UNITS / name).read_text())
    return parsed["Service"]


@pytest.mark.parametrize("name", sorted(each.name for each in UNITS.iterdir()))
def test_the_documentation_shows_the_file(name):
    """So that an installation with pip, which has no deploy/, can be set up from it."""
    assert f"```text\n{(UNITS / name).read_text()}```" in (ROOT / "docs" / "deployment.md").read_text()


@pytest.mark.parametrize("process", PLATFORM)
def test_each_process_of_the_platform_is_an_instance_of_the_template(process):
    """The instance's name is the subcommand."""
    program, *words = shlex.split(service("nsq-platform@.service")["ExecStart"].replace("%i", process))
    assert program == "/opt/nsq/bin/nsq"
    assert nsq(*words, "--help").returncode == 0


def test_the_processes_accept_the_file_of_variables(tmp_path):
    """With a folder that exists here in place of the one that systemd creates."""
    for unit in ("nsq-platform@.service", "nsq-platform-prepare.service"):
        folder = service(unit)["StateDirectory"]
        assert service(unit)["EnvironmentFile"] == "/etc/nsq/platform.env"
    lines = [line for line in (UNITS / "platform.env").read_text().splitlines() if not line.startswith("#")]
    variables = dict(line.split("=", 1) for line in lines)
    assert variables["NSQ_HOME"] == f"/var/lib/{folder}"
    read = Environment.read(variables | {"NSQ_HOME": str(tmp_path)})
    from_environment(variables)
    assert (read.site, read.https) == (variables["NSQ_SITE"], True)
