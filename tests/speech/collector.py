"""A collector of OpenTelemetry for tests: OTLP over HTTP on loopback, decoded."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """Takes OTLP over HTTP on loopback, as a collector does."""

    url: str
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    came: threading.Event = field(default_factory=threading.Event)
    hold: threading.Event = field(default_factory=threading.Event)
    """Answers wait for it."""

    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Serve one for a while."""
    taken: Collector

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            taken.requests.append(ExportTraceServiceRequest.FromString(body))
            taken.headers.append({name.lower(): value for name, value in self.headers.items()})
            taken.headers[-1]["path"] = self.path
            taken.came.set()
            taken.hold.wait(20)
            self.send_response(taken.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        taken = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        taken.hold.set()
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield taken
        finally:
            taken.hold.set()
            server.shutdown()
            serving.join()
