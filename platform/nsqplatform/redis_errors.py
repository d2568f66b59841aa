"""Redis's errors in words for people."""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

_WITHOUT_PASSWORD = ("NOAUTH", "HELLO must be called with the client already authenticated", "WRONGPASS")
"""Parts of answers to a client without the password, which redis-py reports as various errors."""


def redis_failure(error: RedisError | OSError) -> str:
    """One sentence: Redis does not answer, or why it refuses commands."""
    if isinstance(error, OutOfMemoryError):
        return "Redis is full and refuses to store anything: raise its maxmemory, or free memory"
    if isinstance(error, ReadOnlyError):
        return "Redis is read-only: REDIS_URL has to name the primary server, not a replica"
    needs_password = isinstance(error, AuthenticationError) or any(each in str(error) for each in _WITHOUT_PASSWORD)
    if needs_password or isinstance(error, NoPermissionError):
        return "Redis refuses the user or password of REDIS_URL"
    if isinstance(error, ResponseError):
        return f"Redis refuses a command: {error}"
    return f"Redis does not answer: {error}"
