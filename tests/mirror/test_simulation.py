"""Simulated stories of a pair: nothing acknowledged is lost, and each rule is needed for that."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.mirror.mutations import MUTATIONS, Mutation
from tests.mirror.stories import Story
from tests.mirror.world import Violation

STORIES = 40
SEARCHED = 150
"""Stories in which a rule that is left out must show."""


def test_stories_lose_nothing_and_end_in_sync() -> None:
    """Stories from a seed of each run, which is printed; ``python -m tests.mirror.stories`` tells thousands."""
    first, counts = int.from_bytes(os.urandom(4)), Counter[str]()
    print(f"stories from seed {first}")
    for seed in range(first, first + STORIES):
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
    with mutation(), pytest.raises(Violation):
        for seed in range(MUTATIONS[mutation], MUTATIONS[mutation] + SEARCHED):
            Story(seed).tell()
