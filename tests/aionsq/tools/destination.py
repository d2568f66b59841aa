"""An HTTP server that receives messages, as a process that a test can kill.

``python destination.py PORT FILE``: appends each body to FILE, a line of hex each, before it answers 200; prints its
port first.
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        os.write(FILE, body.hex().encode() + b"\n")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


if __name__ == "__main__":
    FILE = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
