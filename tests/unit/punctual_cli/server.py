"""A real HTTP server on loopback with programmed answers, which records its requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from punctual_client.client import Client


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


class RecordingServer:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers: dict[tuple[str, str], list[Answer]] = {}
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, self.rfile.read(length))
                recorder.requests.append(request)
                given = recorder.next_answer(request)
                if given is None:
                    self.close_connection = True
                    return
                self.send_response(given.status)
                self.send_header("Content-Type", given.content_type)
                self.send_header("Content-Length", str(len(given.body)))
                for name, value in given.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(given.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815  the names that http.server looks for

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing: `requests` has them."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.client = Client(self.url, "the-token")

    def close(self) -> None:
        self.client.__exit__(None, None, None)
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(timeout=10)

    def answer(
        self,
        method: str,
        path: str,
        body: object,
        *,
        status: int = 200,
        times: int = 1,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """What to answer next; the last answer of a path stays."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "text/plain" if isinstance(body, bytes) else "application/json"
        self._answers.setdefault((method, path), []).extend([Answer(status, data, kind, headers or {})] * times)

    def hang_up(self, method: str, path: str, *, times: int) -> None:
        """Close the connection without an answer."""
        self._answers.setdefault((method, path), []).extend([Answer(0, b"", "")] * times)

    def next_answer(self, request: Request) -> Answer | None:
        answers = self._answers.get((request.method, request.path))
        if not answers:
            return Answer(404, b'{"detail": "There is nothing here."}', "application/problem+json")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer if answer.status else None

    def upload(self, path: str) -> dict[str, object]:
        return {"url": f"{self.url}{path}", "method": "PUT", "headers": {"x-pinned": "yes"}}
