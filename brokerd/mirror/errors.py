"""Errors of the stream between two members of a pair. The texts are logged."""

from __future__ import annotations


class InvalidStream(Exception):
    """The other member sent bytes that do not follow the protocol, or that were altered on the way."""


class Fenced(Exception):
    """The other member leads a term that is earlier than one that this member has seen."""


class JoinRefused(Exception):
    """The primary does not let this member join; the text is the reason."""


class MirrorDamaged(Exception):
    """A file of the follower does not match its commit record or checksum. The follower has to join again."""


class NoFollowerInSync(Exception):
    """The primary cannot hand over: no other member has everything that was acknowledged."""
