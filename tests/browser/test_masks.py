"""Masks on their page: created with a preview, changed, deleted, and only by administrators."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect


def test_a_mask_is_created_previewed_changed_and_deleted(visit, stack, axe):
    """A wrong path is named beside the field; the preview shows what others see, and stores nothing."""
    stack.publish("masked.orders")
    visitor = visit("/", user="ada")
    page = visitor.page

    def stored() -> list[dict[str, Any]]:
        return visitor.call("GET", "masks")[1]["masks"]

    page.get_by_role("navigation", name="Main").get_by_role("link", name="Masks").click()
    page.get_by_role("button", name="New mask").click()
    dialog = page.get_by_role("dialog", name="New mask")
    dialog.get_by_label("Topics").fill("masked.*")
    dialog.get_by_label("Hidden values").fill("$.order\ncard")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert")).to_contain_text("'card' does not start with $")
    expect(dialog.get_by_label("Hidden values")).to_have_attribute("aria-invalid", "true")
    assert axe(page) == []
    dialog.get_by_label("Hidden values").fill("$.order\n\n $.card.number ")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("status")).to_contain_text('{"order": "***", "card": {"number": "***"}}')
    dialog.get_by_label("Sample body").fill("text")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("status")).to_contain_text("is withheld from other users")
    assert stored() == []
    names = dialog.get_by_label("Headers that stay visible")
    names.fill("tenant\ntwo words")
    dialog.get_by_role("button", name="Create mask").click()
    expect(dialog.get_by_role("alert")).to_contain_text("'two words' is not the name of a header")
    expect(names).to_have_attribute("aria-invalid", "true")
    names.fill("Tenant")
    dialog.get_by_role("button", name="Create mask").click()
    row = page.get_by_role("row").filter(has_text="masked.*")
    expect(row).to_contain_text("$.order, $.card.number")
    expect(row).to_contain_text("and all headers but tenant")
    expect(row).to_contain_text("admins only")
    assert [each["paths"] for each in stored()] == [["$.order", "$.card.number"]]

    row.get_by_role("button", name="Edit the mask of masked.*").click()
    dialog = page.get_by_role("dialog", name="Mask of masked.*")
    dialog.get_by_label("Topics").fill("no topic")
    dialog.get_by_label("Visible to").select_option("operators and admins")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("'no topic' is not a glob of topic names")
    dialog.get_by_label("Topics").fill("masked.orders")
    dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("row").filter(has_text="masked.orders")
    expect(row).to_contain_text("operators and admins")

    row.get_by_role("button", name="Delete the mask of masked.orders").click()
    dialog = page.get_by_role("dialog", name="Delete the mask of masked.orders")
    expect(dialog).to_contain_text("will see $.order, $.card.number")
    assert axe(page) == []
    dialog.get_by_role("button", name="Delete mask").click()
    expect(page.get_by_text("No masks", exact=True)).to_be_visible()
    assert stored() == []
    assert [fault for fault in visitor.faults if "422" not in fault] == []


def test_an_operator_sees_masks_and_changes_none(visit):
    """The page is not in the navigation; its address shows the list without buttons."""
    ada = visit("/", user="ada")
    status, mask = ada.call("POST", "masks", {"topic_pattern": "masked.*", "paths": ["$.card"]})
    assert status == 201, mask
    page = visit("/masks", user="mara").page
    expect(page.get_by_role("row").filter(has_text="masked.*")).to_contain_text("$.card")
    expect(page.get_by_role("main").get_by_role("button", name="mask")).to_have_count(0)
    expect(page.get_by_role("navigation", name="Main").get_by_role("link", name="Masks")).to_have_count(0)
    assert ada.call("DELETE", f"masks/{mask['id']}")[0] == 204
