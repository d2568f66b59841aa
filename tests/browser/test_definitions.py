"""Definitions on their page: downloaded, reviewed, applied."""

from __future__ import annotations

import tomllib
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.clicks import Clicks


def test_definitions_are_downloaded_changed_reviewed_and_applied(visit, stack, axe, tmp_path: Path):
    """Six clicks: the page, the download, the file, what to remove, apply, and check again."""
    stack.command("/topic/create", topic="defined.old")
    stack.publish("defined.old", 3)
    visitor = visit("/", user="ada")
    page = visitor.page
    clicks = Clicks(page)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Definitions").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    file = tmp_path / "nsq-definitions.toml"
    download.value.save_as(file)
    exported = tomllib.loads(file.read_text())
    assert "defined.old" in [topic["name"] for topic in exported["topics"]]
    assert "ada" in [person["username"] for person in exported["people"]]

    kept = "".join(
        f'[[topics]]\nname = "{topic["name"]}"\n' for topic in exported["topics"] if topic["name"] != "defined.old"
    )
    file.write_text(f'version = 1\n[[topics]]\nname = "defined.new"\nchannels = [{{name = "billing"}}]\n{kept}')
    with page.expect_file_chooser() as chooser:
        page.get_by_text("Choose a file…").click()
    chooser.value.set_files(file)
    changes = page.get_by_role("list", name="Changes")
    expect(changes).to_contain_text("Topic defined.new")
    expect(changes.get_by_role("listitem").filter(has_text="defined.old")).to_contain_text("not in the file")
    assert stack.topic("defined.old") is not None

    page.get_by_label("Remove entries that the file’s sections lack").click()
    expect(changes.get_by_role("listitem").filter(has_text="defined.old")).to_contain_text("remove")
    expect(page.get_by_text("and deletes")).to_contain_text("This cannot be undone.")
    assert axe(page) == []
    page.get_by_role("button", name="Apply").click()
    expect(changes.get_by_role("listitem").filter(has_text="defined.old")).to_contain_text("removed")
    assert stack.topic("defined.old") is None
    page.get_by_role("button", name="Check again").click()
    expect(page.get_by_text("The platform matches the file.")).to_be_visible()
    assert clicks.count == 6
    assert visitor.faults == []


def test_a_refused_file_names_its_entries(visit, axe, tmp_path: Path):
    """Each with its path in the file, and nothing is changed."""
    page = visit("/definitions", user="ada").page
    file = tmp_path / "wrong.toml"
    file.write_text('version = 1\n[[rules]]\nname = "x"\nscope = "channel"\nmetric = "no such"\n')
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_role("alert")).to_contain_text("rules.0.metric")
    assert axe(page) == []


def test_a_viewer_exports_and_imports_nothing(visit):
    page = visit("/definitions", user="viktor").page
    expect(page.get_by_role("link", name="Download")).to_be_visible()
    expect(page.get_by_text("Your role, viewer, may not import definitions.")).to_be_visible()
    expect(page.locator("input[type=file]")).to_have_count(0)
