"""The figures of one node's topics or channels as an array. A large cluster has ten thousand rows every second."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from nsqwire.figures import Figure

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
NO_AGE = int(np.iinfo(np.int64).min)
"""The value of an age that the node does not report, or that does not exist."""


class FigureMatrix(Generic[Key]):
    """Keys and, in the same order, a row of whole numbers for each."""

    def __init__(self, keys: Sequence[Key], stats: Sequence[Any], figures: Sequence[Figure]) -> None:
        """``stats``: what nsqd reported of each key. ``figures``: the columns."""
        self.keys = keys
        count = len(keys)
        self.numbers: Ints = np.empty((count, len(figures)), np.int64)
        for place, figure in enumerate(figures):
            self.numbers[:, place] = np.fromiter(map(attrgetter(figure.json_key), stats), np.int64, count)
        self.paused = [each.paused for each in stats]
        ages = (each.oldest_unfinished_age_ns for each in stats)
        self.ages_ns: Ints = np.fromiter((NO_AGE if age is None else age for age in ages), np.int64, count)

    @cached_property
    def places(self) -> dict[Key, int]:
        return {key: place for place, key in enumerate(self.keys)}

    def numbers_of(self, keys: Sequence[Key]) -> tuple[Ints, NDArray[np.bool_]]:
        """The rows of these keys, zeros for unknown ones, and which are known."""
        if keys == self.keys:
            return self.numbers, np.ones(len(keys), bool)
        found = np.array([self.places.get(key, -1) for key in keys], np.int64)
        known = found >= 0
        numbers = np.zeros((len(keys), self.numbers.shape[1]), np.int64)
        numbers[known] = self.numbers[found[known]]
        return numbers, known
