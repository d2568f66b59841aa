"""The errors of the protocol, and how they are reported to clients.

Code raises the error; :data:`REPLIES` defines which error code a TCP client gets, which status and message an HTTP
client gets, and whether the TCP connection is closed after the error frame. The codes and texts are nsqd's.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class NSQError(Exception):
    """Base of every error that reaches a client. ``str(error)`` is the text after the code of an error frame."""


class BadProtocol(NSQError):
    """The connection did not begin with the magic of a supported protocol."""


class Invalid(NSQError):
    """A command that is unknown, malformed, or not allowed in the connection's state."""


class BadBody(NSQError):
    """The body of IDENTIFY, AUTH or MPUB is invalid."""


class BadTopic(NSQError):
    """A topic name that breaks the naming rule."""


class BadChannel(NSQError):
    """A channel name that breaks the naming rule."""


class BadMessage(NSQError):
    """A published message that is empty, too big or cut short."""


class BadHeaders(NSQError, ValueError):
    """Headers that cannot be published, or bytes that are not a header block. nsqd has no such error."""


class PublishFailed(NSQError):
    """The broker could not store a message; the text is the reason, such as the disk's error."""


class TopicFull(PublishFailed):
    """A publish was refused because too many messages wait in the topic. nsqd has no such error."""


class BelowReserve(PublishFailed):
    """A publish was refused because less of the disk is free than its reserve. nsqd has no such error."""


DRAINED: Final = "the node is being drained"
"""The end of the text of Drained in error frames, by which producers know that they have to move."""


class Drained(PublishFailed):
    """A publish was refused because the node is being drained. nsqd has no such error."""


class PubFailed(PublishFailed):
    """PublishFailed, as PUB reports it."""


class MpubFailed(PublishFailed):
    """PublishFailed, as MPUB reports it."""


class DpubFailed(PublishFailed):
    """PublishFailed, as DPUB reports it."""


class SubFailed(NSQError):
    """A subscription was refused."""


class IdentifyFailed(NSQError):
    """IDENTIFY was valid, but the broker cannot grant what it requests."""


class AuthDisabled(NSQError):
    """AUTH was sent to a broker without an auth server."""


class AuthFirst(NSQError):
    """A command that requires AUTH was sent before AUTH."""


class AuthFailed(NSQError):
    """No auth server gave a valid answer. The client does not receive the reason."""


class Unauthorized(NSQError):
    """The auth server's answer does not permit the command."""


class FinFailed(NSQError):
    """FIN named a message that is not in flight with this connection."""


class ReqFailed(NSQError):
    """REQ named a message that is not in flight with this connection."""


class TouchFailed(NSQError):
    """TOUCH named a message that is not in flight with this connection."""


class TopicNotFound(NSQError):
    """The topic does not exist."""


class ChannelNotFound(NSQError):
    """The channel does not exist."""


class WouldBeDropped(NSQError):
    """Dead messages were not requeued, because the channel's policy would drop them."""


class Reply(NamedTuple):
    """How one kind of error is reported to a client."""

    tcp: str
    """Code of the error frame."""
    http: tuple[int, str] | None
    """Status and message; None if the error cannot occur over HTTP."""
    fatal: bool
    """True: the connection is closed once the frame is flushed."""


REPLIES: dict[type[NSQError], Reply] = {
    BadProtocol: Reply("E_BAD_PROTOCOL", None, fatal=True),
    Invalid: Reply("E_INVALID", None, fatal=True),
    BadBody: Reply("E_BAD_BODY", (413, "BAD_BODY"), fatal=True),
    BadTopic: Reply("E_BAD_TOPIC", (400, "INVALID_TOPIC"), fatal=True),
    BadChannel: Reply("E_BAD_CHANNEL", (400, "INVALID_ARG_CHANNEL"), fatal=True),
    BadMessage: Reply("E_BAD_MESSAGE", (413, "BAD_MESSAGE"), fatal=True),
    BadHeaders: Reply("E_BAD_MESSAGE", (400, "INVALID_HEADERS"), fatal=True),
    PublishFailed: Reply("E_PUB_FAILED", (503, "EXITING"), fatal=True),
    Drained: Reply("E_PUB_FAILED", (503, "DRAINING"), fatal=True),
    BelowReserve: Reply("E_PUB_FAILED", (503, "DISK_RESERVE"), fatal=True),
    TopicFull: Reply("E_PUB_FAILED", (503, "TOPIC_FULL"), fatal=True),
    PubFailed: Reply("E_PUB_FAILED", (503, "EXITING"), fatal=True),
    MpubFailed: Reply("E_MPUB_FAILED", (503, "EXITING"), fatal=True),
    DpubFailed: Reply("E_DPUB_FAILED", (503, "EXITING"), fatal=True),
    SubFailed: Reply("E_SUB_FAILED", None, fatal=True),
    IdentifyFailed: Reply("E_IDENTIFY_FAILED", None, fatal=True),
    AuthDisabled: Reply("E_AUTH_DISABLED", None, fatal=True),
    AuthFirst: Reply("E_AUTH_FIRST", None, fatal=True),
    AuthFailed: Reply("E_AUTH_FAILED", None, fatal=True),
    Unauthorized: Reply("E_UNAUTHORIZED", None, fatal=True),
    FinFailed: Reply("E_FIN_FAILED", None, fatal=False),
    ReqFailed: Reply("E_REQ_FAILED", None, fatal=False),
    TouchFailed: Reply("E_TOUCH_FAILED", None, fatal=False),
    WouldBeDropped: Reply("E_INVALID", (400, "WOULD_BE_DROPPED"), fatal=False),
    TopicNotFound: Reply("E_BAD_TOPIC", (404, "TOPIC_NOT_FOUND"), fatal=True),
    ChannelNotFound: Reply("E_BAD_CHANNEL", (404, "CHANNEL_NOT_FOUND"), fatal=True),
}


def go_quote(raw: bytes) -> str:
    r"""Quote a name as Go's ``%q`` does, which nsqd uses in its error texts.

    Control bytes and invalid UTF-8 become escapes (``\n``, ``\x00``, ``\xff``); printable characters stay as they are.
    """
    quoted = ['"']
    for char in raw.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if char in '"\\':
            quoted.append("\\" + char)
        elif char in _NAMED_ESCAPES:
            quoted.append(_NAMED_ESCAPES[char])
        elif 0xDC80 <= code <= 0xDCFF:
            quoted.append(f"\\x{code - 0xDC00:02x}")
        elif code < 0x20 or code == 0x7F:
            quoted.append(f"\\x{code:02x}")
        elif char.isprintable():
            quoted.append(char)
        else:
            quoted.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    quoted.append('"')
    return "".join(quoted)


_NAMED_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
