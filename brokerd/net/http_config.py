"""``/config/:opt``: reads any setting, and changes the two that may change while the broker runs."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from brokerd.net.statsd import statsd_prefix
from brokerd.settings import BrokerSettings
from nsqdaemon import logs
from nsqdaemon.http import HTTPError, Request, Response, json_response, text_response
from nsqdaemon.logs import LogLevel
from nsqdaemon.settings import file_keys
from nsqwire.durations import nanoseconds
from nsqwire.gojson import decode_json

if TYPE_CHECKING:
    from brokerd.net.peers import LookupPeers

log = logging.getLogger(__name__)

_FIELDS: Final = file_keys(BrokerSettings)
_TLS_VERSIONS: Final = {"tls1.0": 769, "tls1.1": 770, "tls1.2": 771, "tls1.3": 772}


class Config:
    """The endpoint. ``http_port`` is the port announced to nsqlookupd; the statsd prefix contains it."""

    def __init__(self, settings: BrokerSettings, peers: LookupPeers, *, http_port: int) -> None:
        self._settings = settings
        self._peers = peers
        self._http_port = http_port

    def get(self, request: Request) -> Response:
        """The present value of one setting: strings as they are, others as JSON, durations in nanoseconds."""
        return self._answer(request.path_value)

    def put(self, request: Request) -> Response:
        """Change a setting until the process ends, and return its new value."""
        body, option = request.body, request.path_value
        if not 0 < len(body) <= self._settings.max_msg_size:
            raise HTTPError(413, "INVALID_VALUE")
        if option == "nsqlookupd_tcp_addresses":
            self._peers.set_addresses(_addresses(body))
        elif option == "log_level":
            logs.set_level(_log_level(body))
        else:
            raise HTTPError(400, "INVALID_OPTION")
        log.info("%s changed to %s", option, body.decode("utf-8", "replace"))
        return self._answer(option)

    def _answer(self, option: str) -> Response:
        if option not in _FIELDS:
            raise HTTPError(400, "INVALID_OPTION")
        value = self._value(option)
        return text_response(value) if isinstance(value, str) else json_response(value)

    def _value(self, option: str) -> object:
        match option:
            case "nsqlookupd_tcp_addresses":
                return self._peers.addresses
            case "log_level":
                return int(logs.level())
            case "tls_required":
                return self._settings.tls_required_code
            case "tls_min_version":
                return _TLS_VERSIONS.get(self._settings.tls_min_version, 0)
            case "statsd_prefix":
                return statsd_prefix(self._settings, self._http_port)
        value = getattr(self._settings, _FIELDS[option])
        if isinstance(value, timedelta):
            return nanoseconds(value)
        return list(value) if isinstance(value, tuple) else value


def _addresses(body: bytes) -> list[str]:
    try:
        value = decode_json(body)
    except (ValueError, RecursionError):
        raise HTTPError(400, "INVALID_VALUE") from None
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(address, str) for address in value):
        raise HTTPError(400, "INVALID_VALUE")
    return value


def _log_level(body: bytes) -> LogLevel:
    try:
        return LogLevel.parse(body.decode())
    except ValueError:
        raise HTTPError(400, "INVALID_VALUE") from None
