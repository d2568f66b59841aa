"""One node's topics or channels as arrays: a large cluster has ten thousand of them every second."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
NO_AGE = int(np.iinfo(np.int64).min)


class Figures(Generic[Key]):
    """Names and, in the same order, a row of figures for each."""

    def __init__(self, keys: Sequence[Key], held: Sequence[Any], names: Sequence[str]) -> None:
        """``names`` are the whole numbers of each of ``held`` that are wanted."""
        self.keys = keys
        count = len(keys)
        self.numbers: Ints = np.empty((count, len(names)), np.int64)
        for place, name in enumerate(names):
            self.numbers[:, place] = np.fromiter(map(attrgetter(name), held), np.int64, count)
        self.paused = [each.paused for each in held]
        ages = (each.oldest_unfinished_age_ns for each in held)
        self.ages_ns: Ints = np.fromiter((NO_AGE if age is None else age for age in ages), np.int64, count)

    @cached_property
    def places(self) -> dict[Key, int]:
        return {key: place for place, key in enumerate(self.keys)}

    def numbers_of(self, keys: Sequence[Key]) -> tuple[Ints, NDArray[np.bool_]]:
        """Rows for these names, zero for what is not here, and which are here."""
        if keys == self.keys:
            return self.numbers, np.ones(len(keys), bool)
        found = np.array([self.places.get(key, -1) for key in keys], np.int64)
        known = found >= 0
        numbers = np.zeros((len(keys), self.numbers.shape[1]), np.int64)
        numbers[known] = self.numbers[found[known]]
        return numbers, known
