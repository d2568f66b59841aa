"""The part of a Kubernetes API server that keeps Leases: over TLS, for one service account, with faults on demand."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import trustme

_PATH: Final = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/([^/]+)/leases(?:/([^/]+))?")
_MICRO_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
NAMESPACE: Final = "queues"


class Invalid(Exception):
    """What the API server does not store; the text says why."""


class LeaseServer:
    """A running server. As the real one, it refuses an update of an object that was changed since it was read."""

    def __init__(self, directory: Path) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.before_write: list[Callable[[], None]] = []
        """Called before the next writes, one each."""
        self.losing = 0
        """The number of next writes that are stored and not answered."""
        self.refusing_to_free = 0
        """The number of next writes that would free a Lease of its holder and fail."""
        self.service_account = directory / "account"
        self.service_account.mkdir()
        self.use_token("first")
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.service_account / "ca.crt")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that each pod has."""
        host, port = self._server.server_address[:2]
        return {"KUBERNETES_SERVICE_HOST": str(host), "KUBERNETES_SERVICE_PORT": str(port)}

    def use_token(self, token: str) -> None:
        """Accept this token only, and store it in the service account."""
        self._token = token
        (self.service_account / "token").write_text(token + "\n")

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self)

            do_POST = do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        match = _PATH.fullmatch(request.path)
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            return _send(request, 401, _status("Unauthorized"))
        if match is None or match[1] != NAMESPACE:
            return _send(request, 403, _status(f'cannot {request.command} "leases" in {request.path}'))
        if request.command == "GET":
            found = self.leases.get(match[2])
            return _send(request, 200, found) if found else _send(request, 404, _status(f'"{match[2]}" not found'))
        if self.before_write:
            self.before_write.pop(0)()
        lease = json.loads(body)
        if self.refusing_to_free and "holderIdentity" not in lease.get("spec", {}):
            self.refusing_to_free -= 1
            return _send(request, 500, _status("etcdserver: leader changed"))
        try:
            status, answer = self._store(match[2], lease)
        except Invalid as error:
            status, answer = 422, _status(str(error))
        if status in (200, 201) and self.losing:
            self.losing -= 1
            request.close_connection = True
            return None
        return _send(request, status, answer)

    def _store(self, name: str | None, lease: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Store an object; ``name`` is None for a new one."""
        with self._lock:
            found = self.leases.get(lease["metadata"]["name"])
            _check(lease, name)
            if name is None and found is not None:
                return 409, _status(f'"{lease["metadata"]["name"]}" already exists')
            if name is not None and found is None:
                return 404, _status(f'"{name}" not found')
            if found is not None and lease["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                return 409, _status("the object has been modified; please apply your changes to the latest version")
            self.writes += 1
            lease["metadata"]["resourceVersion"] = f"r{self.writes}"
            self.leases[lease["metadata"]["name"]] = lease
            return 201 if name is None else 200, lease


def _check(lease: dict[str, Any], name: str | None) -> None:
    """Raise Invalid for what Kubernetes 1.31 refuses."""
    spec, metadata = lease.get("spec", {}), lease["metadata"]
    if lease.get("kind") != "Lease" or (name is not None and metadata["name"] != name):
        raise Invalid("another object")
    if (name is None) != ("resourceVersion" not in metadata):
        raise Invalid("resourceVersion must be given for an update, and not for a new object")
    if spec.get("holderIdentity") == "":
        raise Invalid("spec.holderIdentity: must not be empty")
    if spec.get("leaseDurationSeconds", 1) < 1 or spec.get("leaseTransitions", 0) < 0:
        raise Invalid("spec.leaseDurationSeconds: must be greater than 0")
    if not all(_MICRO_TIME.fullmatch(spec[field]) for field in ("acquireTime", "renewTime") if field in spec):
        raise Invalid("a time is no MicroTime")
    if not all(isinstance(value, str) for value in metadata.get("annotations", {}).values()):
        raise Invalid("metadata.annotations: not a string")


def _status(message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message}


def _send(request: BaseHTTPRequestHandler, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)
