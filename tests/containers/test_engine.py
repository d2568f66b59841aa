"""The images, built and run by podman, and compose.yaml on them. docs/contributing.md describes NSQ_CONTAINERS."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness import web
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
BASES = Path(__file__).parent / "bases"
KIND = os.environ.get("NSQ_CONTAINERS", "")
OPTIONS = shlex.split(os.environ.get("NSQ_CONTAINERS_BUILD", ""))
START_S = 300.0
"""How long the processes of compose.yaml may take to start: two JVMs among them, on a busy machine."""

pytestmark = [
    pytest.mark.skipif(not KIND, reason="NSQ_CONTAINERS=1 builds and runs images (docs/contributing.md)"),
    pytest.mark.timeout(3600),
]


def run(*words: str, **options: Any) -> str:
    """Run a command and return its standard output; asserts status 0."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, (
        f"{shlex.join(words)}: status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def images() -> dict[str, str]:
    """The names of both images, built from the working tree."""
    for tool in ("podman", "buildah", *(["mmdebstrap"] if KIND == "debian" else [])):
        assert shutil.which(tool), f"{tool} is not on PATH"
    bases = []
    if KIND == "debian":
        run(str(BASES / "make.sh"), env={**os.environ, "BUILD_OPTIONS": shlex.join(OPTIONS)})
        for argument, name in (("DEBIAN", "debian"), ("MINIMAL", "python")):
            bases += ["--build-arg", f"{argument}=localhost/nsq-base/{name}"]
    names = {}
    for target in ("broker", "platform"):
        names[target] = f"localhost/nsq-{target}:local"
        options = ["--format", "docker", "--layers", "--network", "host", *bases, *OPTIONS]
        run("buildah", "build", "--quiet", *options, "--target", target, "--tag", names[target], str(ROOT))
    return names


def inspect(kind: str, name: str) -> dict[str, Any]:
    return dict(json.loads(run("podman", kind, "inspect", name))[0])


def address(container: str) -> str:
    """The container's IP address, which this machine reaches without published ports."""
    (network,) = inspect("container", container)["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])


@pytest.fixture
def start(images: dict[str, str]) -> Iterator[Callable[..., str]]:
    """``start(image, *words)`` runs a container and returns its id."""
    started: list[str] = []

    def run_image(image: str, *words: str, options: tuple[str, ...] = ()) -> str:
        started.append(run("podman", "run", "--detach", *options, images[image], *words))
        return started[-1]

    yield run_image
    for each in started:
        subprocess.run(["podman", "rm", "--force", "--time", "0", "--volumes", each], capture_output=True, check=False)


# --- the images


def test_the_brokers_image_is_small(images: dict[str, str]) -> None:
    assert inspect("image", images["broker"])["Size"] <= 120_000_000


@pytest.mark.parametrize("image", ["broker", "platform"])
def test_images_run_without_root_with_compiled_bytecode(images: dict[str, str], image: str) -> None:
    """Every module has its bytecode, and it is in use although the image is read-only."""
    code = (
        "import os, pathlib, importlib.util as u, sys\n"
        "files = [f for f in pathlib.Path(sys.prefix, 'lib').rglob('*.py') if not f.is_symlink()]\n"
        "bare = [str(f) for f in files if not os.path.exists(u.cache_from_source(str(f)))]\n"
        "print(os.getuid(), len(files) > 200, len(bare) < len(files) // 100)\n"
    )
    options = ["--rm", "--read-only", "--cap-drop", "all"]
    assert run("podman", "run", *options, images[image], "python", "-c", code) == "65532 True True"


def test_the_broker_has_no_java_and_the_platform_one(images: dict[str, str]) -> None:
    code = (
        "import os\n"
        "found = {os.path.realpath(os.path.join(folder, name)) for folder, _, names in os.walk('/')\n"
        "         if not folder.startswith('/proc') for name in names if name == 'libjvm.so'}\n"
        "print(len(found))\n"
    )
    count = {image: run("podman", "run", "--rm", images[image], "python", "-c", code) for image in images}
    assert count == {"broker": "0", "platform": "1"}


def test_the_broker_has_no_shell_and_a_compiled_kernel(images: dict[str, str]) -> None:
    code = "import shutil; from brokerd import kernel; print(shutil.which('sh'), kernel.COMPILED)"
    assert run("podman", "run", "--rm", images["broker"], "python", "-c", code) == "None True"


def test_stopping_a_broker_drains_it(start: Callable[..., str]) -> None:
    """A consumer finishes the last message after the stop signal; the process then ends by itself, with status 0."""
    name = start("broker", options=("--read-only", "--env", "BROKERD_DRAIN_TIMEOUT=10m"))
    host = address(name)
    wait_until(lambda: answers(f"http://{host}:4151/ping"), "the broker")
    client = V2Client((host, 4150))
    client.sub("orders", "billing", ready_count=1)
    client.pub("orders", b"last")
    message_id, _, body = client.message()
    stopping = subprocess.Popen(["podman", "stop", "--time", "600", name], stdout=subprocess.DEVNULL)
    wait_until(lambda: web.get(f"http://{host}:4151/drain").json()["drain"], "the drain")
    client.finish(message_id)
    assert stopping.wait(timeout=120) == 0
    assert body == b"last"
    assert inspect("container", name)["State"]["ExitCode"] == 0
    assert "the drain is over: 0 messages are left" in logs(name)


def test_the_health_check_of_the_image_passes(start: Callable[..., str]) -> None:
    name = start("broker")
    wait_until(lambda: answers(f"http://{address(name)}:4151/ping"), "the broker")
    run("podman", "healthcheck", "run", name)


def test_volumes_belong_to_the_user_of_the_image(start: Callable[..., str]) -> None:
    """A named volume takes the owner of the folder in the image: the broker can write to it."""
    name = start("broker", options=("--volume", "/srv/brokerd"))
    wait_until(lambda: answers(f"http://{address(name)}:4151/ping"), "the broker")
    answer = web.post(f"http://{address(name)}:4151/pub?topic=orders", content=b"x")
    assert answer.text == "OK"


def answers(url: str) -> bool:
    try:
        return web.get(url).status_code == 200
    except OSError:
        return False
    except web.httpx.HTTPError:
        return False


def logs(name: str) -> str:
    done = subprocess.run(["podman", "logs", name], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


# --- compose.yaml


class Project:
    """The services of compose.yaml, without published ports, which may be in use on this machine."""

    def __init__(self, folder: Path) -> None:
        tool = os.environ.get("NSQ_COMPOSE") or shutil.which("podman-compose")
        assert tool, "podman-compose is not on PATH; NSQ_COMPOSE names it"
        declared = yaml.safe_load((ROOT / "compose.yaml").read_text())
        for service in declared["services"].values():
            service.pop("ports", None)
            service.pop("build", None)
            # podman 4 knows no conditions of dependencies: the fixture starts the services in their order.
            service.pop("depends_on", None)
        (folder / "compose.yaml").write_text(yaml.safe_dump(declared))
        variables = {"NSQ_SECRET_KEY": "k" * 50, "POSTGRES_PASSWORD": "secret", "NSQ_ALLOWED_HOSTS": "*"}
        if KIND == "debian":
            variables |= {f"{each}_IMAGE": f"localhost/nsq-base/{each.lower()}" for each in ("POSTGRES", "REDIS")}
        self.environment = {**os.environ, **variables}
        self.words = [tool, "--file", str(folder / "compose.yaml"), "--project-name", "nsqtest"]

    def __call__(self, *words: str) -> str:
        return run(*self.words, *words, env=self.environment)

    def name(self, service: str) -> str:
        label = f"label=com.docker.compose.service={service}"
        project = "label=io.podman.compose.project=nsqtest"
        return run("podman", "ps", "--all", "--quiet", "--filter", label, "--filter", project)

    def exec(self, service: str, *words: str) -> str:
        return run("podman", "exec", self.name(service), *words)

    def url(self, service: str, port: int) -> str:
        return f"http://{address(self.name(service))}:{port}"


@pytest.fixture(scope="module")
def project(images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Started in the order of `depends_on`."""
    found = Project(tmp_path_factory.mktemp("compose"))
    found("down", "--volumes")
    try:
        found("up", "--detach", "postgres", "redis")
        wait_until(lambda: is_prepared(found), "the database", within_s=START_S)
        found("up", "--detach")
        wait_until(lambda: answers(found.url("web", 4171) + "/ping"), "the web process", within_s=START_S)
        yield found
    finally:
        subprocess.run([*found.words, "down", "--volumes"], env=found.environment, capture_output=True, check=False)


def is_prepared(project: Project) -> bool:
    done = subprocess.run(
        [*project.words, "run", "--rm", "prepare"], env=project.environment, capture_output=True, check=False
    )
    return done.returncode == 0


def test_compose_signs_in_by_link(project: Project) -> None:
    """The link of ``nsq signin-link`` signs the first administrator in, and the pages know the brokers."""
    site = project.url("web", 4171)
    link = project.exec("web", "nsq", "signin-link", "--site", site)
    with web.client() as browser:
        snapshot = f"{site}/api/v1/snapshot"
        assert browser.get(snapshot).status_code == 401
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get(link).text)
        assert token is not None
        browser.post(link, data={"csrfmiddlewaretoken": token[1]})

        def brokers() -> set[str]:
            rows = browser.get(snapshot).raise_for_status().json()["nodes"]
            return {row["broadcast_address"] for row in rows if row["state"] == "up"}

        wait_until(lambda: brokers() == {"brokerd-1", "brokerd-2"}, "both brokers", within_s=START_S)


def test_compose_keeps_acknowledged_messages_of_a_killed_broker(project: Project) -> None:
    """kill -9 on all processes of its container, then its start: every acknowledged message is delivered."""
    url = project.url("brokerd-1", 4151)
    web.post(f"{url}/topic/create?topic=killed")
    web.post(f"{url}/channel/create?topic=killed&channel=all")
    for number in range(100):
        assert web.post(f"{url}/pub?topic=killed", content=b"%d" % number).text == "OK"
    name = project.name("brokerd-1")
    os.kill(inspect("container", name)["State"]["Pid"], 9)
    wait_until(
        lambda: "killed" in inspect("container", name)["State"]["Status"] or restarted(name), "its end or restart"
    )
    wait_until(lambda: answers(project.url("brokerd-1", 4151) + "/ping"), "the broker", within_s=START_S)
    client = V2Client((address(name), 4150))
    client.sub("killed", "all", ready_count=100)
    bodies = set()
    for _ in range(100):
        message_id, _, body = client.message()
        client.send(b"FIN %b\n" % message_id)
        bodies.add(body)
    assert bodies == {b"%d" % number for number in range(100)}


def restarted(name: str) -> bool:
    """Whether the container runs; starts it if its restart policy has not."""
    if inspect("container", name)["State"]["Running"]:
        return True
    subprocess.run(["podman", "start", name], capture_output=True, check=False)
    return False


def test_compose_makes_a_report_on_its_spark(project: Project) -> None:
    """The worker is the driver; an executor of the Spark worker reads the archive and writes the result."""
    code = (
        "import sys\n"
        "from datetime import UTC, datetime, timedelta\n"
        "from nsqanalytics.archive import ArchiveWriter\n"
        "from nsqanalytics.schema import Sample\n"
        "began = datetime(2026, 3, 14, tzinfo=UTC)\n"
        "same = {'node': 'a:4151', 'boot_id': '1', 'topic': 'orders', 'started_at': began}\n"
        "ArchiveWriter('/srv/archive/report').write([\n"
        "    Sample(taken_at=began + timedelta(seconds=10 * n), uptime_ns=n * 10**10, depth=0,\n"
        "           message_count=100 * n, **same)\n"
        "    for n in range(1, 360)\n"
        "])\n"
    )
    project.exec("worker", "python", "-c", code)
    registered = "Successfully registered with master"
    wait_until(lambda: registered in logs(project.name("spark-worker")), "Spark's worker", within_s=START_S)
    where = ["--archive=/srv/archive/report", "--output=/srv/reports/report", "--parameter=until=2026-03-14T01:00:00Z"]
    project.exec("worker", "python", "-m", "nsqanalytics", "run", "throughput", *where)
    count = "import pyarrow.dataset as d; print(d.dataset('/srv/reports/report').count_rows())"
    assert int(project.exec("worker", "python", "-c", count)) >= 1
    assert "Executor" in logs(project.name("spark-worker"))
