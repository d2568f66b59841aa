"""HTTP requests to a node or registry, with answers in JSON."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from nsqanalytics.topics.address import Address
from nsqanalytics.topics.errors import BadOption, NodeUnreadable
from nsqanalytics.topics.options import TLSFiles


class Connection:
    """A persistent connection. ``timeout_s`` bounds each wait for the other end."""

    def __init__(self, address: Address, tls: TLSFiles, timeout_s: float) -> None:
        self.address = address
        self._tls = tls
        self._timeout_s = timeout_s
        self._open: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Mapping[str, object]) -> tuple[int, Any]:
        """Return the status and the JSON of the answer, None if it has none.

        If the node requires TLS, it is asked again over TLS, on the port that its refusal names. Raises NodeUnreadable
        with the address, and BadOption for TLS files that cannot be read.
        """
        target = f"{path}?{urlencode(query)}"
        status, body = self._answer(target)
        if status == 403 and isinstance(body, dict) and isinstance(port := body.get("https_port"), int):
            self.close()
            self.address = Address(self.address.host, port, is_https=True)
            status, body = self._answer(target)
        return status, body

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _answer(self, target: str) -> tuple[int, Any]:
        is_reused = self._open is not None
        try:
            if self._open is None:
                self._open = self._connection()
            self._open.request("GET", target)
            answer = self._open.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if is_reused:  # the other end may have closed it because it was idle
                return self._answer(target)
            if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
                # Not the error's text, which may have the bytes of the answer.
                raise NodeUnreadable(f"{self.address.name} does not speak HTTP; is it the port for TCP?") from None
            raise NodeUnreadable(f"{self.address.name} cannot be reached: {error or type(error).__name__}") from None
        try:
            return answer.status, json.loads(body)
        except ValueError:
            return answer.status, None

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if not self.address.is_https:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=_context(self._tls))


def _context(tls: TLSFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise BadOption("tls_ca_file", f"{tls.ca_file} cannot be read: {error}") from None
    if tls.cert_file is not None:
        try:
            # Without a passphrase, OpenSSL would ask for that of an encrypted key on the terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(filter(None, (tls.cert_file, tls.key_file)))
            raise BadOption("tls_cert_file", f"{files} cannot be read: {error}") from None
    return context
