"""The example of docs/tasks.md runs as it is written, and the page lists every option."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from tests.harness.daemon import Broker
from tests.harness.process import Process
from tests.harness.waiting import DEADLINE_S

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tasks.md"


def test_the_example_works(tmp_path: Path, broker: Broker) -> None:
    """Only the broker's address and the folder are the test's."""
    page = PAGE.read_text()
    set_up, run = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[:2]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONUNBUFFERED": "1",
    }
    install, *commands = set_up.splitlines()
    assert install == "pip install 'nsq-client[tasks]'"
    [migrate, worker] = run.splitlines()
    shell(";".join(commands), tmp_path, environment)
    site = tmp_path / "mysite"
    for name, code in re.findall(r"```python\n# (\w+/\w+\.py)\n(.*?)```", page, re.DOTALL):
        with (site / name).open("a") as file:
            file.write(code.replace("127.0.0.1:4150", broker.tcp_address))
    shell(migrate, site, environment)
    [enqueue] = re.findall(r"```python\n# in the shell\n(.*?)```", page, re.DOTALL)
    [printed] = re.findall(r"It prints:\n\n```text\n(.*?)```", page, re.DOTALL)
    program, *words = worker.split()
    assert program == "python"
    with Process([sys.executable, *words], merged=True, cwd=site, env=environment) as process:
        process.wait_for_log("worker .* runs tasks of default, emails")
        assert shell("python manage.py shell -v 0", site, environment, enqueue) == printed
        assert process.terminate() == 0


def shell(command: str, folder: Path, environment: dict[str, str], text: str = "") -> str:
    """Run a line of the page in a shell, and return what it prints."""
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_has_every_option() -> None:
    from nsqtasks.options import Options

    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text().partition("## OPTIONS")[2], re.MULTILINE)
    assert rows == [each.name for each in fields(Options)]
