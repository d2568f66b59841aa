"""A cluster of two nodes, one of which stops answering."""

from __future__ import annotations

from playwright.sync_api import expect


def test_a_node_that_hangs_is_shown_as_down_and_in_the_outcome(live, stack):
    """The nodes page and the overview point at it; an action says where it was done and where not, as does the log."""
    here = stack.addresses["--nsqd-http-address"]
    stack.publish("spread")
    with stack.second_node() as other:
        other.publish("spread")
        page = live("/topics/spread")
        by_node = page.get_by_role("table", name="This topic on each node")
        expect(by_node.get_by_role("link")).to_have_text(sorted([here, other.id]))
        other.freeze()
        page.get_by_role("link", name="Nodes", exact=True).click()
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=other.id))
        expect(row.get_by_text("down", exact=True)).to_be_visible()
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.get_by_role("region", name="Needs attention")).to_contain_text(other.id)
        page.goto("/topics/spread")
        page.get_by_role("button", name="Pause", exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Pause topic").click()
        expect(dialog.get_by_text("Done on some nodes only")).to_be_visible()
        expect(dialog.get_by_role("row").filter(has_text=here)).to_contain_text("done")
        expect(dialog.get_by_role("row").filter(has_text=other.id)).to_contain_text("unreachable")
        assert stack.topic("spread")["paused"] is True
        page.goto("/audit")
        entry = page.get_by_role("list", name="Audit log").get_by_role("listitem").filter(has_text="spread").first
        expect(entry).to_contain_text("partial")
