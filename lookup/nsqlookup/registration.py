"""Registrations: the entries of the registry."""

from __future__ import annotations

from typing import Literal, NamedTuple

Category = Literal["client", "topic", "channel"]


class Registration(NamedTuple):
    """The key of an entry: ``("client", "", "")``, ``("topic", topic, "")`` or ``("channel", topic, channel)``."""

    category: Category
    key: str = ""
    subkey: str = ""

    def __str__(self) -> str:
        return f"category:{self.category} key:{self.key} subkey:{self.subkey}"


CLIENT = Registration("client")


def topic_registration(topic: str) -> Registration:
    """Return the key of a topic's producers."""
    return Registration("topic", topic)


def channel_registration(topic: str, channel: str) -> Registration:
    """Return the key of a channel's producers."""
    return Registration("channel", topic, channel)
