"""Errors of the stream between two members of a pair. The texts are logged."""

from __future__ import annotations


class InvalidStream(Exception):
    """The other end sent bytes that do not follow the protocol, or that were altered on the way."""


class Fenced(Exception):
    """The other end has a lower epoch than this member has seen: it led an earlier term."""


class JoinRefused(Exception):
    """The primary does not let this member join, or the member does not want to."""


class MirrorDamaged(Exception):
    """A follower's file does not have what its commit record says. The follower has to join again."""


class NoFollowerInSync(Exception):
    """The primary cannot hand over: no other member has everything that was acknowledged."""
