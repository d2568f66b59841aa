"""The documentation as a site, and the files that a forge reads."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


# --- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site. A broken link, a missing anchor or a page without a place is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_of_docs_is_reachable_from_the_index(site: Path) -> None:
    """By the navigation, which each page has."""
    index = (site / "index.html").read_text()
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} | {"security", "changelog"}
    assert len(pages) > 20
    assert [page for page in sorted(pages) if f'href="{page}.html"' not in index] == []


def test_the_search_finds_headings_of_pages(site: Path) -> None:
    found = {entry["title"] for entry in json.loads((site / "search" / "search_index.json").read_text())["docs"]}
    assert {"Draining a node", "Glossary", "Changelog"} <= found


def test_pictures_of_pages_are_on_the_site(site: Path) -> None:
    """Also those of the README, whose paths begin with docs/."""
    pages = [site / "index.html", site / "operators.html"]
    pictures = [(page.parent / name).resolve() for page in pages for name in _pictures(page)]
    assert len(pictures) > 6
    assert [str(picture) for picture in pictures if not picture.is_file()] == []


def _pictures(page: Path) -> list[str]:
    return re.findall(r'src(?:set)?="([^":]*images/[^"]*)"', page.read_text())


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("folder", "markdown", "adapted"),
    [
        ("", "[a](docs/client.md#x)", "[a](client.md#x)"),
        ("", "![a](docs/images/a.png)", "![a](images/a.png)"),
        ("docs", "[a](client.md)", "[a](client.md)"),
        ("docs", "[the list](../CHANGELOG.md#x)", "[the list](changelog.md#x)"),
        ("docs", "[compose](../compose.yaml)", "compose"),
        ("docs", "[here](#there) [web](https://example.org/a)", "[here](#there) [web](https://example.org/a)"),
        ("docs", "`[a](../b)`", "`[a](../b)`"),
        ("docs", "```\n[a](../b)\n```", "```\n[a](../b)\n```"),
    ],
)
def test_links_lead_to_pages_of_the_site(hook: ModuleType, folder: str, markdown: str, adapted: str) -> None:
    assert hook.adapted(markdown, folder) == adapted


# --- links of the files as a forge shows them


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_the_root_lead_to_files(name: str) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_or_a_page_that_it_names_leads_to_every_page() -> None:
    """On a forge, which has no navigation."""
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or not page.is_file() or page.suffix != ".md":
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        waiting += [(page.parent / link).resolve() for link in links]
    assert sorted({*(ROOT / "docs").glob("*.md")} - reached) == []


# --- workflows


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def test_there_is_a_workflow_for_each_task() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "images", "test", "wheels"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit(workflow: Path) -> None:
    """A tag can be moved to other code. The comment has the version of the commit."""
    uses = re.findall(r"uses: (.*)", workflow.read_text())
    assert uses
    assert [use for use in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use)] == []


def test_workflows_use_one_version_of_each_action() -> None:
    used = {use for path in WORKFLOWS for use in re.findall(r"uses: (\S+)", path.read_text())}
    assert len(used) == len({use.partition("@")[0] for use in used})


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_says_otherwise(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_of_make_exist(workflow: Path) -> None:
    """And `make` knows how to make them."""
    commands = [line for step in steps(workflow) for line in step.get("run", "").splitlines()]
    made = [shlex.split(line) for line in commands if re.match(r"(sudo )?make ", line)]
    assert made
    for words in made:
        targets = [word for word in words if re.fullmatch(r"[a-z-]+", word) and word not in ("sudo", "make")]
        known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert targets
        assert [target for target in targets if target not in known] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_folders_of_tests_exist(workflow: Path) -> None:
    named = re.findall(r"\btests/\w+", workflow.read_text())
    assert [name for name in named if not (ROOT / name).is_dir()] == []


def test_the_matrix_has_every_python_that_the_distributions_support() -> None:
    """From the version that `requires-python` begins with, and the newest for which wheels are built."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"].values()
    tested = sorted(version for job in jobs for version in job["strategy"]["matrix"]["python"])
    daemons = tomllib.loads((ROOT / "distributions" / "daemons" / "pyproject.toml").read_text())
    built = [f"3.{build.removeprefix('cp3')[:-2]}" for build in daemons["tool"]["cibuildwheel"]["build"].split()]
    assert tested == built
    assert daemons["project"]["requires-python"] == f">={tested[0]}"


def test_issue_forms_have_what_a_forge_requires() -> None:
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= {*form}
        identifiers = [part["id"] for part in form["body"]]
        assert len(identifiers) == len({*identifiers})
        assert all(part["attributes"]["label"] for part in form["body"])
