"""Each distribution is built, installed outside the checkout, and works there with its declared requirements."""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from threading import Timer
from types import ModuleType

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.ports import free_port
from tests.harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "nsq-common": {"nsqwire", "nsqdaemon", "nsqcommand"},
    "nsq-client": {"aionsq", "nsqcluster", "nsqkombu", "nsqtasks"},
    "nsq-daemons": {"brokerd", "nsqlookup", "pytest_nsq"},
    "nsq-analytics": {"nsqanalytics"},
    "nsq-platform": {"nsqplatform"},
    "nsq": set(),
}
DEADLINE_S = 400  # a start of Spark on a busy machine

pytestmark = pytest.mark.timeout(900)  # one of them compiles the kernel


def _build_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_distributions", ROOT / "distributions" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = _build_module()


def project(name: str) -> dict:
    return tomllib.loads((build.FOLDERS[name] / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Iterator[Callable[[str], Path]]:
    """``wheel(name)``: the distribution's wheel, built from its sdist, once.

    The compiler does not optimise, which takes most of the time of a build: how fast the kernel is, is not tested here.
    """
    folder = tmp_path_factory.mktemp("wheels")
    compiler = folder / "cc"
    compiler.write_text(f'#!/bin/sh\nexec {os.environ.get("CC", "cc")} "$@" -O0\n')
    compiler.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(compiler))
        yield cache(lambda name: build.build(name, folder))


# --- what the distributions require


def required(names: set[str]) -> tuple[set[str], set[str]]:
    """Return (distributions of this project, third parties) that an installation of ``names`` has.

    Fails if an installed third party has a version that a distribution of ours does not allow.
    """
    ours: set[str] = set()
    others: set[str] = set()
    waiting = [Requirement(name) for name in names]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, frozenset(wanted.extras)))
        if name in PACKAGES:
            ours.add(name)
            optional = project(name).get("optional-dependencies", {})
            lines = project(name)["dependencies"] + [line for extra in wanted.extras for line in optional[extra]]
        else:
            others.add(name)
            assert wanted.specifier.contains(metadata.version(name), prereleases=True), f"{wanted} and constraints.txt"
            lines = metadata.requires(name) or []
        extras = {"", *wanted.extras}
        for requirement in map(Requirement, lines):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(requirement)
    return ours, others


def link_third_parties(names: set[str], folder: Path) -> None:
    """Make it possible to import these installed distributions from ``folder``, and no others."""
    for name in names:
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top in ("..", "__pycache__"):
                continue
            place = Path(str(metadata.distribution(name).locate_file(top)))
            # A folder without __init__.py may be shared with another distribution.
            is_shared = len(file.parts) > 1 and not (place / "__init__.py").exists()
            entry = Path(*file.parts[:2]) if is_shared else Path(top)
            target = folder / entry
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_symlink():
                target.symlink_to(place / file.parts[1] if is_shared else place)


class Installation:
    """A virtual environment with wheels of this project, and their requirements."""

    def __init__(self, folder: Path, names: set[str], wheel: Callable[[str], Path]) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.bin = folder / "environment" / "bin"
        venv.create(folder / "environment", with_pip=False)
        ours, others = required(names)
        wheels = [str(wheel(name)) for name in sorted(ours)]
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", *wheels], check=True)
        self.home.mkdir()
        link_third_parties(others, folder / "third-parties")
        (site_packages,) = (folder / "environment").glob("lib/python*/site-packages")
        (site_packages / "third-parties.pth").write_text(f"{folder / 'third-parties'}\n")

    def environment(self) -> dict[str, str]:
        # An archive of Spark's classes would be used once.
        without_archive = {"NSQ_SPARK_CLASSES": ""}
        return {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home), "NO_PROXY": "*", **without_archive}

    def run(self, *command: str, **options) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment to its end, outside the checkout."""
        program, *words = command
        return subprocess.run(
            [self.bin / program, *words],
            cwd=self.home,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            **options,
        )

    def python(self, code: str, *words: str) -> str:
        """Run code with the environment's Python and return what it printed."""
        done = self.run("python", "-c", code, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self, *command: str) -> Iterator[Callable[[str], re.Match[str]]]:
        """Run a command; the yielded function waits for a line of its output that matches, with a deadline."""
        program, *words = command
        process = subprocess.Popen(
            [self.bin / program, *words],
            cwd=self.home,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        deadline = Timer(DEADLINE_S, process.kill)
        deadline.start()
        assert process.stdout is not None
        lines: list[str] = []

        def wait_for(pattern: str) -> re.Match[str]:
            for line in process.stdout:
                lines.append(line)
                if match := re.search(pattern, line):
                    return match
            raise AssertionError(f"no line {pattern!r} in:\n{''.join(lines)}")

        try:
            yield wait_for
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
            deadline.cancel()

    def has(self, module: str) -> bool:
        return self.run("python", "-c", f"import {module}").returncode == 0


@pytest.fixture(scope="module")
def install(tmp_path_factory, wheel) -> Callable[..., Installation]:
    """``install(*names)``: an installation of these distributions, made once."""
    return cache(lambda *names: Installation(tmp_path_factory.mktemp("installed"), set(names), wheel))


def get(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=DEADLINE_S) as answer:
        return answer.read()


# --- metadata


def test_all_distributions_have_one_version_and_require_each_other_by_it():
    assert {project(name)["version"] for name in PACKAGES} == {project("nsq")["version"]}
    for name in PACKAGES:
        extras = project(name).get("optional-dependencies", {})
        lines = [*project(name)["dependencies"], *(line for extra in extras.values() for line in extra)]
        for requirement in map(Requirement, lines):
            if requirement.name.startswith("nsq-"):
                assert str(requirement.specifier) == f"=={project('nsq')['version']}"


def test_nsq_all_requires_every_distribution():
    (all_,) = [extra for name, extra in project("nsq")["optional-dependencies"].items() if name == "all"]
    assert {Requirement(line).name for line in all_} == PACKAGES.keys() - {"nsq", "nsq-common"}


def test_published_requirements_are_ranges_that_allow_the_pinned_versions():
    ours, others = required({"nsq-client", "nsq-daemons", "nsq-analytics", "nsq-platform"})
    assert ours == PACKAGES.keys() - {"nsq"}
    assert {"django", "pyspark", "aiohttp"} <= others
    for name in ours:
        for requirement in map(Requirement, project(name)["dependencies"]):
            pinned = any(each.operator in ("==", "===") for each in requirement.specifier)
            assert pinned == requirement.name.startswith("nsq-"), requirement


@pytest.mark.parametrize("name", sorted(PACKAGES.keys() - {"nsq"}))
def test_a_distribution_requires_everything_that_its_packages_import(name):
    """Every imported package, at the top of a module or inside a function."""
    extras = project(name).get("optional-dependencies", {})
    lines = [*project(name)["dependencies"], *(line for extra in extras.values() for line in extra)]
    allowed = {canonicalize_name(Requirement(line).name) for line in lines} | {name}
    owners = metadata.packages_distributions()
    missing = set()
    for package in PACKAGES[name]:
        for file in (build.FOLDERS[name] / package).resolve().rglob("*.py"):
            for module in imported(file):
                providers = next(([owner] for owner, packages in PACKAGES.items() if module in packages), None)
                providers = providers or owners.get(module, [])
                if module not in sys.stdlib_module_names and not {*map(canonicalize_name, providers)} & allowed:
                    missing.add(f"{file.relative_to(ROOT)}: {module}")
    assert sorted(missing) == []


def imported(file: Path) -> set[str]:
    """The top-level packages that a module imports, except for those imported only for their types."""
    found = set()
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)
    return found


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_wheel_has_the_packages_of_its_distribution_and_nothing_else(name, wheel):
    """At the top level of site-packages are only this project's packages."""
    names = zipfile.ZipFile(wheel(name)).namelist()
    packages = {entry.partition("/")[0] for entry in names if not re.match(r"[^/]+\.(dist-info|data)/", entry)}
    assert packages == PACKAGES[name]
    assert {entry.rpartition("/")[2] for entry in names} >= ({"LICENSE", "METADATA"})


def test_a_wheel_has_the_manual_pages_of_its_subcommands(wheel):
    """Where man finds them if the environment's programs are on the PATH."""
    for name, pages in (
        ("nsq-common", {"nsq", "nsq-completion", "nsq-man"}),
        ("nsq-daemons", {"nsq-brokerd", "nsq-lookup", "nsq-promote", "nsq-repair"}),
    ):
        names = zipfile.ZipFile(wheel(name)).namelist()
        found = {Path(entry).stem for entry in names if ".data/data/share/man/man1/" in entry}
        assert found == pages, name


# --- the kernel


def test_without_a_compiler_the_kernel_is_left_out_with_a_warning(tmp_path):
    """The build succeeds, with a warning."""
    source = tmp_path / "daemons"
    unbuilt = shutil.ignore_patterns("*.so", "_*.c", "*.egg-info", "__pycache__", "build")
    shutil.copytree(build.FOLDERS["nsq-daemons"], source, ignore=unbuilt)
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    answer = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=source,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CC": "no-such-compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "the plain-Python kernel serves" in answer.stdout + answer.stderr
    names = zipfile.ZipFile(tmp_path / answer.stdout.splitlines()[-1]).namelist()
    assert not [name for name in names if name.endswith(".so")]
    assert {"brokerd/kernel/frames.py", "brokerd/kernel/_frames.pyi", "nsqlookup/registry.py"} <= {*names}


@pytest.mark.skipif(not shutil.which(os.environ.get("CC", "cc")), reason="no C compiler on PATH")
def test_with_a_compiler_the_kernel_is_compiled(wheel):
    """One extension for each .pyx, beside its plain twin."""
    names = zipfile.ZipFile(wheel("nsq-daemons")).namelist()
    for source in (ROOT / "brokerd" / "kernel").glob("_*.pyx"):
        assert [name for name in names if name.startswith(f"brokerd/kernel/{source.stem}.") and name.endswith(".so")]


# --- each does its job

PRODUCE_AND_CONSUME = """
import asyncio, sys
from aionsq import Consumer, Producer

async def main():
    async with asyncio.timeout(60), Producer(sys.argv[1]) as producer:
        await producer.pub("greetings", b"hello")
        async with Consumer("greetings", "readme", nsqd_tcp_addresses=[sys.argv[1]]) as consumer:
            async for message in consumer:
                print(message.body.decode())
                break

asyncio.run(main())
"""
ANY_PORT = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")


CELERY = """
import sys
import nsqkombu
from kombu import Connection

with Connection(f"nsq://{sys.argv[1]}") as connection:
    queue = connection.SimpleQueue("greetings")
    queue.put("hello")
    message = queue.get(timeout=60)
    message.ack()
    print(message.payload)
    queue.close()
"""


def test_the_clients_extra_celery_has_the_transport_of_kombu(install):
    """Without the extra, its import says what to install."""
    without = install("nsq-client").run("python", "-c", "import nsqkombu")
    assert without.stderr.splitlines()[-1].endswith("No module named 'kombu': pip install 'nsq-client[celery]'")
    client = install("nsq-client[celery]")
    assert client.has("celery")
    with install("nsq-daemons").running("nsqd", *ANY_PORT, f"--data-path={client.home}") as wait_for:
        address = wait_for(r"TCP: listening on (\S+)")[1]
        assert client.python(CELERY, address) == "hello\n"


def test_client_and_daemons_work_together(install, tmp_path):
    """Two installations: a program that uses aionsq, and a broker. Neither has the other's packages, nor Django."""
    client, daemons = install("nsq-client"), install("nsq-daemons")
    assert (client.has("aionsq"), client.has("brokerd"), client.has("django")) == (True, False, False)
    assert (daemons.has("brokerd"), daemons.has("aionsq"), daemons.has("django")) == (True, False, False)
    with daemons.running("nsqd", f"--data-path={tmp_path}", *ANY_PORT) as wait_for:
        addresses = dict(wait_for(r"(TCP|HTTP): listening on (\S+)").groups() for _ in range(2))
        assert get(f"http://{addresses['HTTP']}/ping") == b"OK"
        assert client.python(PRODUCE_AND_CONSUME, addresses["TCP"]) == "hello\n"
        nodes = f"--nsqd-http-address={addresses['HTTP']}"
        assert '"greetings"' in client.run("nsq", "topics", "--json", nodes).stdout
        refused = client.run("nsq", "topics", nodes)
        assert (refused.returncode, refused.stderr) == (
            1,
            "nsq topics: tables need rich: pip install 'nsq-client[tools]'; --json prints without it\n",
        )
        topics = install("nsq-client[tools]").run("nsq", "topics", nodes)
        assert "greetings" in topics.stdout, topics.stderr
        published = client.run("to_nsq", "--topic=lines", f"--nsqd-tcp-address={addresses['TCP']}", input="a line\n")
        assert published.returncode == 0, published.stderr
        tail = client.run("nsq_tail", "--topic=lines", "--n=1", f"--nsqd-tcp-address={addresses['TCP']}")
        assert "a line" in tail.stdout


def test_the_client_takes_30_megabytes_at_most(install):
    """With its requirements and their bytecode."""
    client = install("nsq-client")
    folders = [*(client.folder / "environment").glob("lib/python*/site-packages"), client.folder / "third-parties"]
    assert sum(size_of(folder) for folder in folders) <= 30_000_000


def size_of(folder: Path) -> int:
    """Bytes of all files below ``folder``, with bytecode of all modules, those that links lead to included."""
    sources = {Path(entry.path).resolve() for entry in walk(folder)}
    return sum(file.stat().st_size for file in sources if "__pycache__" not in file.parts) + sum(
        len(marshal.dumps(compile(file.read_bytes(), str(file), "exec"))) + 16
        for file in sources
        if file.suffix == ".py"
    )


def walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All files below ``folder``, through links to folders."""
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from walk(Path(entry.path))
        else:
            yield entry


def test_every_tool_explains_itself_without_extras(install):
    """``--help`` needs neither rich nor uvloop, and a table says what to install."""
    client = install("nsq-client")
    assert not client.has("rich")
    assert not client.has("uvloop")
    for script in (*project("nsq-client")["scripts"], "nsq"):
        shown = client.run(script, "--help")
        assert shown.returncode == 0, script
        assert "usage" in (shown.stdout + shown.stderr).lower(), script
    for subcommand in ("topics", "channels", "nodes", "policies", "messages", "pub", "tail", "stat"):
        shown = client.run("nsq", subcommand, "--help")
        assert shown.returncode == 0, subcommand
        assert "usage" in (shown.stdout + shown.stderr).lower(), subcommand


def test_the_registry_serves(install):
    with install("nsq-daemons").running("nsqlookupd", *ANY_PORT) as wait_for:
        addresses = dict(wait_for(r"(TCP|HTTP): listening on (\S+)").groups() for _ in range(2))
        assert get(f"http://{addresses['HTTP']}/topics") == b'{"topics":[]}'


def test_nsq_lists_installed_subcommands_and_names_other_distributions(install):
    client = install("nsq-client")
    usage = client.run("nsq", "--help").stdout
    assert re.search(r"^  tail ", usage, re.MULTILINE)
    assert re.search(r"^  nsq-daemons +brokerd, lookup, repair, promote$", usage, re.MULTILINE)
    assert re.search(r"^  nsq-platform +up, ", usage, re.MULTILINE)
    up = client.run("nsq", "up")
    assert (up.returncode, up.stderr) == (1, "nsq: up is not installed: pip install nsq-platform\n")


WRITE_AN_ARCHIVE = """
import sys
from datetime import UTC, datetime, timedelta
from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.schema import Sample

began = datetime(2026, 3, 14, tzinfo=UTC)
same = {"node": "a:4151", "boot_id": "1", "topic": "orders", "started_at": began}
ArchiveWriter(sys.argv[1]).write([
    Sample(taken_at=began + timedelta(seconds=10 * n), uptime_ns=n * 10**10, depth=0, message_count=100 * n, **same)
    for n in range(1, 360)
])
"""


def test_analytics_makes_a_report(install, tmp_path):
    """With the Java of its own requirements: PATH has none."""
    analytics = install("nsq-analytics")
    assert (analytics.has("pyspark"), analytics.has("django"), analytics.has("brokerd")) == (True, False, False)
    archive, output = str(tmp_path / "archive"), str(tmp_path / "throughput")
    analytics.python(WRITE_AN_ARCHIVE, archive)
    until = "--parameter=until=2026-03-14T01:00:00Z"
    where = (f"--archive={archive}", f"--output={output}")
    done = analytics.run("python", "-m", "nsqanalytics", "run", "throughput", *where, until)
    assert done.returncode == 0, done.stderr
    rows = analytics.python("import sys, pyarrow.dataset as d; print(d.dataset(sys.argv[1]).count_rows())", output)
    assert int(rows) >= 1


def test_the_platform_serves_its_pages_and_keeps_data_in_the_users_folder(install):
    """``nsq up`` starts the bundled Redis, registry, broker, collector and web; the front end is in the wheel."""
    platform = install("nsq-platform")
    addresses = {flag: free_address() for flag in ADDRESS_FLAGS}
    words = [word for pair in addresses.items() for word in pair]
    with platform.running("nsq", "up", "--without=worker,dispatcher,beat", *words) as wait_for:
        wait_for(r"● web +running")
        site = f"http://{addresses['--http-address']}"
        index = platform_page(site)
        (script, *_) = re.findall(r'src="(/static/[^"]+\.js)"', index)
        assert get(site + script)
    assert (platform.home / ".local" / "share" / "nsq" / "platform.sqlite3").is_file()
    assert not list(platform.folder.glob("environment/lib/python*/var"))


def test_a_newcomer_installs_everything_and_sees_traffic_after_one_command(install):
    """``pip install 'nsq[all]'`` and ``nsq up``; the printed link signs in, and the API has the demo's traffic."""
    everything = install("nsq[all]")
    addresses = {flag: free_address() for flag in ADDRESS_FLAGS}
    words = [word for pair in addresses.items() for word in pair]
    site = f"http://{addresses['--http-address']}"
    with everything.running("nsq", "up", *words) as wait_for:
        link = wait_for(r"Sign in, once, as admin: (http\S+)")[1]
        assert link.startswith(site)
        wait_for(r"Ctrl-C stops everything")
        with httpx.Client(trust_env=False, timeout=DEADLINE_S, follow_redirects=True) as browser:
            token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get(link).text)
            assert token is not None
            assert browser.post(link, data={"csrfmiddlewaretoken": token[1]}).status_code == 200
            demo = [f"{flag}={addresses[flag]}" for flag in ("--nsqd-tcp-address", "--nsqd-http-address")]
            with everything.running("nsq", "demo", *demo):

                def traffic() -> int:
                    rows = browser.get(f"{site}/api/v1/snapshot").json().get("topics", [])  # 503: no snapshot yet
                    return sum(row["message_count"] for row in rows if row["name"] == "orders")

                wait_until(lambda: traffic() > 0, "the API has the traffic of the demo")
        again = everything.run("nsq", "signin-link", f"--site={site}")
        assert again.stdout.startswith(site), again.stderr


ADDRESS_FLAGS = (
    *("--nsqd-tcp-address", "--nsqd-http-address", "--lookupd-tcp-address", "--lookupd-http-address"),
    "--http-address",
)


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def platform_page(site: str) -> str:
    """The page for a browser that has not signed in."""
    request = urllib.request.Request(site + "/", headers={"Accept": "text/html"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=DEADLINE_S) as answer:
        return answer.read().decode()
