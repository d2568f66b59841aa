"""What fuzzers send: conversations in the grammar of each port, well-formed, nearly so, and not at all.

Each is a byte string for one connection. Half of them are made from the files in ``corpus/``: one conversation in each,
which is sent as it is or with a few changes. No conversation names the topic of the bystander, drains the node, or
changes what it logs.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from urllib.parse import quote

from hypothesis import strategies as st

from nsqwire.headers import encode_headers

CORPUS = Path(__file__).with_name("corpus")
LEFT_ALONE = ("bystander", "drain", "log_level", "nsqlookupd_tcp_addresses", "pprof")
"""A conversation with one of these would change what the bystander may expect, or wait for other machines."""

Bytes = st.SearchStrategy[bytes]


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


names = st.sampled_from(["t", "fuzz", "fuzz#ephemeral", "", "bad*", "x" * 65, "é", "."])
channels = st.sampled_from(["c", "d#ephemeral", "", "bad*"])
numbers = st.one_of(
    st.integers(-2, 3000).map(str), st.integers(0, 2**70).map(str), st.sampled_from(["", "x", "1.5", "0x10", "1e9"])
)
message_ids = st.one_of(st.text("0123456789abcdef", min_size=16, max_size=16), st.text(max_size=17))
words = st.one_of(names, channels, numbers, message_ids)
anything = st.binary(max_size=80)

# -- TCP ----------------------------------------------------------------------------------------------------------

_sizes = st.integers(-(2**31), 2**31 - 1)
_wrong_size = st.builds(lambda size, data: struct.pack(">i", size) + data, _sizes, st.binary(max_size=20))
_many = st.lists(st.binary(max_size=20), max_size=5).map(
    lambda each: sized(struct.pack(">i", len(each)) + b"".join(map(sized, each)))
)
_values = st.one_of(st.booleans(), st.integers(-2, 100_000), st.text(max_size=8), st.none(), st.lists(st.integers()))
_identity = st.dictionaries(
    st.sampled_from(
        [
            *(
                "feature_negotiation",
                "heartbeat_interval",
                "output_buffer_size",
                "output_buffer_timeout",
                "msg_timeout",
            ),
            *("deflate", "deflate_level", "snappy", "tls_v1", "sample_rate", "headers", "publish_ids", "client_id"),
            *("broadcast_address", "tcp_port", "http_port", "version", "hostname", "topology_zone"),
        ]
    ),
    _values,
    max_size=6,
).map(lambda fields: sized(json.dumps(fields).encode()))
_with_headers = st.builds(
    lambda value, body: sized(sized(encode_headers({"a": value})) + body),
    st.text("abc", max_size=5),
    st.binary(max_size=20),
)
_bodies = st.one_of(anything.map(sized), _wrong_size, _many, _identity, _with_headers, st.just(b""))
_V2 = ["IDENTIFY", "AUTH", "SUB", "PUB", "MPUB", "DPUB", "HPUB", "HMPUB", "HDPUB", "RDY", "FIN", "REQ", "TOUCH", "CLS"]
_V1 = ["IDENTIFY", "REGISTER", "UNREGISTER", "PING"]


def _commands(verbs: list[str]) -> Bytes:
    line = st.builds(
        lambda verb, params, end: " ".join([verb, *params]).encode() + end,
        st.sampled_from([*verbs, *verbs, "NOP", "", "GET"]),
        st.lists(words, max_size=3),
        st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b""]),
    )
    return st.builds(lambda line, body: line + body, line, st.one_of(st.just(b""), _bodies))


def _conversations(magic: bytes, commands: Bytes, good: list[bytes]) -> Bytes:
    begin = st.sampled_from([magic] * 9 + [b"", b"GET ", b"\x16\x03\x01"])
    parts = st.lists(st.one_of(st.sampled_from(good), commands, anything), max_size=10).map(b"".join)
    return st.builds(lambda begin, parts: begin + parts, begin, parts)


_broker_tcp = _conversations(
    b"  V2",
    _commands(_V2),
    [
        b"PUB fuzz\n" + sized(b"x"),
        b"MPUB fuzz\n" + sized(struct.pack(">i", 2) + sized(b"a") + sized(b"b")),
        b"SUB fuzz c\n",
        b"RDY 10\n",
        b"CLS\n",
    ],
)
_registry_tcp = _conversations(
    b"  V1",
    _commands(_V1),
    [
        b"IDENTIFY\n" + sized(b'{"broadcast_address":"a","tcp_port":1,"http_port":2,"version":"v"}'),
        b"REGISTER fuzz c\n",
        b"UNREGISTER fuzz c\n",
        b"PING\n",
    ],
)

# -- HTTP ---------------------------------------------------------------------------------------------------------

_PARAMETERS = [
    *(
        "topic",
        "channel",
        "format",
        "defer",
        "binary",
        "include_clients",
        "include_mem",
        "timestamp",
        "count",
        "cursor",
    ),
    *("id", "ids", "limit", "reason", "node", "key", "since", "until", "dedup_id", "envelope", "text", "where"),
]
_query = st.lists(
    st.tuples(st.sampled_from(_PARAMETERS), st.one_of(words, st.sampled_from(["json", "true"]))), max_size=4
)
_queries = st.one_of(
    _query.map(lambda pairs: "&".join(f"{name}={quote(value)}" for name, value in pairs)),
    st.just("topic=fuzz&channel=c"),
    st.text("%&=#?ab", max_size=12),
)
_fields = st.lists(
    st.sampled_from(
        [
            b"Host: h",
            b"Connection: close",
            b"Expect: 100-continue",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip",
            b"Content-Length: 3",
            b"Content-Length: -1",
            b"Content-Length: 99999999999999999999",
            b"X-Nsq-Header-a: b",
            b"Accept-Encoding: gzip",
            b"nonsense",
            b": ",
        ]
    ),
    max_size=3,
)
_payloads = st.one_of(
    anything,
    st.sampled_from(
        [b"{}", b"[]", b'{"topic":"fuzz","channel":"c"}', b'{"max_attempts":-1}', b"[" * 3000, b"a\nb\n\nc"]
    ),
    _many,
)


def _request(method: str, path: str, query: str, fields: list[bytes], body: bytes, *, is_sized: bool) -> bytes:
    lines = [f"{method} {path}?{query} HTTP/1.1".encode(), b"Host: h", *fields]
    if is_sized:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _requests(paths: list[str]) -> Bytes:
    request = st.builds(
        _request,
        st.sampled_from(["GET", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "get", ""]),
        st.sampled_from([*paths, "/", "", "/../x", "/%zz"]),
        _queries,
        _fields,
        _payloads,
        is_sized=st.booleans(),
    )
    return st.lists(st.one_of(request, request, request, anything), min_size=1, max_size=4).map(b"".join)


_broker_http = _requests(
    [
        *("/ping", "/info", "/stats", "/metrics", "/pub", "/mpub", "/policies", "/policy", "/policy/delete"),
        *(f"/topic/{verb}" for verb in ("create", "delete", "empty", "pause", "unpause", "scan")),
        *(f"/topics/{verb}" for verb in ("find", "delete", "empty", "pause", "unpause")),
        *(f"/channels/{verb}" for verb in ("delete", "empty", "pause", "unpause")),
        *(
            f"/channel/{verb}"
            for verb in ("create", "delete", "empty", "pause", "unpause", "rewind", "finish", "requeue")
        ),
        *(f"/channel/{verb}" for verb in ("bury", "peek", "scan", "message", "message/body")),
        *("/message/cancel", "/message/deliver", "/config/x", "/debug/freememory", "/debug/setblockrate"),
    ]
)
_registry_http = _requests(
    [
        *("/ping", "/info", "/metrics", "/debug", "/lookup", "/topics", "/channels", "/nodes"),
        *(f"/topic/{verb}" for verb in ("create", "delete", "tombstone")),
        *("/topics/lookup", "/topics/delete", "/topics/tombstone", "/channels/delete"),
        *(f"/channel/{verb}" for verb in ("create", "delete")),
    ]
)

# -- the corpus ---------------------------------------------------------------------------------------------------


def corpus(target: str) -> list[bytes]:
    """The conversations in the files of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


@st.composite
def _changed(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A conversation of the corpus with up to four changes."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + 40)))
        piece = draw(st.one_of(st.binary(max_size=8), st.just(data[at:end] * 2), st.sampled_from(seeds)))
        data = data[:at] + piece + data[end:]
    return data


def conversations(target: str) -> Bytes:
    """What is sent to ``target``, a folder of the corpus."""
    from_grammar = {
        "broker_tcp": _broker_tcp,
        "broker_http": _broker_http,
        "registry_tcp": _registry_tcp,
        "registry_http": _registry_http,
    }[target]
    from_corpus = _changed(corpus(target))
    return st.one_of(from_grammar, from_corpus).filter(
        lambda data: not any(word.encode() in data for word in LEFT_ALONE)
    )


TARGETS = ("broker_tcp", "broker_http", "registry_tcp", "registry_http")
