"""Loopback addresses for processes that listen on fixed ports."""

from __future__ import annotations

import random


def own_address() -> str:
    """A loopback address that nothing else uses, so that all its ports are free: 127.0.0.0/8 has sixteen million."""
    return ".".join(["127", *(str(random.randrange(1, 255)) for _ in range(3))])
