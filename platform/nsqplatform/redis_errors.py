"""Redis's errors in words for people."""

from __future__ import annotations

from redis.exceptions import AuthenticationError, ResponseError


def redis_failure(error: Exception) -> str:
    """One sentence: Redis does not answer, or refuses commands because it is full, read-only or wants a password."""
    if isinstance(error, (ResponseError, AuthenticationError)):
        return f"Redis refuses commands: {error}"
    return f"Redis does not answer: {error}"
