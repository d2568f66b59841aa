"""The latency histograms of one response as arrays. A large node reports half a million counts per second."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Raw

from nsqplatform.cluster.readings.matrix import Ints

LARGEST = 2**63 - 1
"""The largest int64, which numpy also returns for larger numbers."""


class Histograms:
    """The histograms of all channels that have one, in the response's order."""

    def __init__(self, keys: Sequence[tuple[str, str]], zeros: Ints, offsets: Ints, lengths: Ints, counts: Ints):
        self.keys = keys
        """Topic and channel."""
        self.zeros = zeros
        self.offsets = offsets
        """Each channel's first bucket; ``lengths`` is its number of buckets."""
        self.lengths = lengths
        self.counts = counts
        """Each channel's buckets, concatenated."""

    @property
    def ends(self) -> Ints:
        """The index after each channel's counts."""
        return np.cumsum(self.lengths)

    @cached_property
    def totals(self) -> Ints:
        """The sum of each channel's counts."""
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts)])
        return np.asarray(self.zeros + sums[self.ends] - sums[self.ends - self.lengths], np.int64)


def read_counts(lists: Sequence[Raw]) -> tuple[Ints, Ints]:
    """Lengths and concatenated numbers of JSON lists of counts.

    Parses all lists at once, without a Python object for each number. Raises ValueError if one of them is not a list of
    whole numbers from 0 to 2**63 - 2.
    """
    texts = [bytes(each) for each in lists]
    if any(text[:1] != b"[" for text in texts):
        raise ValueError("not a list")
    lengths = np.array([text.count(b",") + 1 if text[1:-1].strip() else 0 for text in texts], np.int64)
    joined = b",".join([text for text, length in zip(texts, lengths.tolist(), strict=True) if length])
    digits = joined.translate(None, b"[] \t\r\n")
    # Each is valid JSON; with only digits and commas between brackets, it is a list of whole numbers.
    if digits.translate(None, b"0123456789,") or joined.count(b"[") != np.count_nonzero(lengths):
        raise ValueError("not a list of counts")
    numbers = np.fromstring(digits, np.int64, sep=",") if digits else np.zeros(0, np.int64)
    if len(numbers) != lengths.sum() or (len(numbers) and numbers.max() == LARGEST):
        raise ValueError("a count is too large")
    return lengths, numbers
