"""The end of a file's contents, before the zeros that fill it."""

from __future__ import annotations

import pytest

from brokerd.zero_padding import end_of_contents

BLOCK = 1 << 16


@pytest.mark.parametrize("zeros", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("contents", [b"", b"a", b"ab\0c", b"\0a", bytes(BLOCK) + b"a", b"a" * (BLOCK + 3)])
@pytest.mark.parametrize("start", [0, 1, BLOCK, 9 * BLOCK])
def test_contents_end_after_the_last_byte_that_is_not_zero(contents: bytes, zeros: int, start: int) -> None:
    data = contents + bytes(zeros)
    expected = start + len(data[start:].rstrip(b"\0"))
    assert end_of_contents(data, start) == expected
    assert end_of_contents(memoryview(data), start) == expected
