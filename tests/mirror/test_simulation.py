"""Simulated stories of a pair: nothing acknowledged is lost, and each rule is needed for that."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mirror.mutations import MUTATIONS, Mutation
from tests.mirror.stories import Story
from tests.mirror.story_runner import Violation

STORIES = 25
SEARCHED = 120
"""Stories in which a rule that is left out must show, beginning with one that is known to."""


def test_stories_lose_nothing_and_end_in_sync() -> None:
    """``python -m tests.mirror.stories`` runs thousands, of other seeds."""
    counts = Counter[str]()
    for seed in range(STORIES):
        story = Story(seed)
        story.tell()
        counts.update(faults=story.world.counts["faults"], takeovers=story.world.checker.takeovers)
    assert counts["faults"] > STORIES
    assert counts["takeovers"] > STORIES


def test_a_story_with_the_same_seed_is_the_same_story() -> None:
    def told() -> tuple[set[int], int, float]:
        story = Story(3)
        story.tell()
        return story.world.checker.acknowledged, story.world.checker.takeovers, story.world.now

    assert told() == told()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_without_a_rule_a_story_goes_wrong(mutation: Mutation) -> None:
    with mutation():
        assert any(goes_wrong(MUTATIONS[mutation] + number) for number in range(SEARCHED))


def goes_wrong(seed: int) -> bool:
    """Return whether the story of a seed breaks a promise."""
    try:
        Story(seed).tell()
    except Violation:
        return True
    return False
