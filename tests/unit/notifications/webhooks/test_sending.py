"""Sending to untrusted receivers: slow, hostile, or changing their address."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jobs.notifications.webhooks import sending
from jobs.notifications.webhooks.address_policy import AddressPolicy, Target, parse_networks
from jobs.notifications.webhooks.sending import WebhookRequest, WebhookResponse, send_webhook
from tests.support.webhook_receiver import Handler, Received, Receiver, answer

POLICY = AddressPolicy(parse_networks(["127.0.0.1/32"]), http=True)
NAME = "receiver.example"


def on_loopback(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


def request_to(port: int, *, host: str = NAME, scheme: str = "http") -> WebhookRequest:
    return WebhookRequest(Target(scheme, host, port, "/hook?a=b"), {"X-One": "1"}, b'{"a":1}')


def send_to(port: int, *, seconds: float = 5) -> WebhookResponse:
    return send_webhook(request_to(port), policy=POLICY, resolve=on_loopback, total_seconds=seconds)


@contextmanager
def serving(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve raw bytes, for responses that no library would send."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        behave(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_request_arrives_and_the_beginning_of_the_response_is_kept() -> None:
    with Receiver(behave=answer(202, b"x" * 100_000)) as receiver:
        response = send_to(receiver.port)
    assert response == WebhookResponse(202, "", "x" * 1024)
    (received,) = receiver.received
    assert (received.path, received.body) == ("/hook?a=b", b'{"a":1}')
    assert received.headers["host"] == f"{NAME}:{receiver.port}"
    assert received.headers["x-one"] == "1"


def test_redirect_is_not_followed() -> None:
    with Receiver() as inside, Receiver(behave=answer(302, location=inside.url)) as receiver:
        response = send_to(receiver.port)
    assert response.status_code == 302
    assert "redirects are not followed" in response.error
    assert inside.received == []


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert send_to(receiver.port).status_code == 200
    assert proxy.received == []


def test_name_is_resolved_once_and_that_address_is_used() -> None:
    """DNS rebinding: nothing is sent to an address that a later lookup returns unchecked."""
    resolved: list[str] = []

    def rebinding(host: str, _port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.1"] if len(resolved) == 1 else ["127.0.0.2"]

    with Receiver() as receiver:
        response = send_webhook(request_to(receiver.port), policy=POLICY, resolve=rebinding)
        assert response.status_code == 200
        assert resolved == [NAME]
        second = send_webhook(request_to(receiver.port), policy=POLICY, resolve=rebinding)
    assert "public internet" in second.error
    assert len(receiver.received) == 1


def test_name_that_also_resolves_to_a_private_address_is_refused() -> None:
    with Receiver() as receiver:
        response = send_webhook(request_to(receiver.port), policy=POLICY, resolve=lambda *_: ["127.0.0.1", "10.0.0.1"])
    assert "public internet" in response.error
    assert receiver.received == []


def test_next_address_is_tried_if_one_does_not_answer() -> None:
    policy = AddressPolicy(parse_networks(["127.0.0.0/8"]), http=True)
    with Receiver() as receiver:
        response = send_webhook(request_to(receiver.port), policy=policy, resolve=lambda *_: ["127.0.0.9", "127.0.0.1"])
    assert response.status_code == 200


def test_unresolvable_name_is_reported() -> None:
    response = send_webhook(request_to(1, host="a.invalid"), policy=POLICY)
    assert response == WebhookResponse(error="The host's name does not resolve.")
    too_long = send_webhook(request_to(1, host="a" * 300), policy=POLICY)
    assert too_long.error == "The host's name does not resolve."


def silent(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def dripping(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)  # the receiver is slow, the test does not wait for it


def continuing(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)


@pytest.mark.parametrize("behave", [silent, dripping, continuing])
def test_slow_response_ends_at_the_deadline(behave: Callable[[socket.socket], None]) -> None:
    with serving(behave) as port:
        began = time.monotonic()
        response = send_to(port, seconds=0.4)
        took = time.monotonic() - began
    assert response == WebhookResponse(error="There was no answer in time (3 s to connect, 0.4 s in all).")
    assert 0.3 < took < 2


def test_endless_body_does_not_change_the_status() -> None:
    def endless(handler: Handler, _: Received) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"begun")
        handler.rfile.read(1)

    with Receiver(behave=endless) as receiver:
        assert send_to(receiver.port, seconds=0.4) == WebhookResponse(200, "", "")


@pytest.mark.parametrize(
    "raw_response",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 999999 X\r\n\r\n",
        b"HTTP/1.1 -200 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
        b"\xff\x00" * 50,
    ],
)
def test_invalid_response_is_reported_and_never_raises(raw_response: bytes) -> None:
    def speak(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(raw_response)

    with serving(speak) as port:
        response = send_to(port)
    assert response.status_code is None
    assert "There was no answer" in response.error
    assert len(response.error) <= 500
    assert "\0" not in response.error


def test_headers_are_read_up_to_a_limit() -> None:
    """http.client alone would accept a hundred lines of 64 KB."""
    sent: list[int] = []

    def bomb(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for _ in range(90):
            connection.sendall(b"X: " + b"y" * 60_000 + b"\r\n")
            sent.append(60_000)
        connection.sendall(b"\r\n")

    with serving(bomb) as port:
        response = send_to(port)
    assert response == WebhookResponse(
        error="There was no answer: HTTPException: it is longer than 32768 bytes, headers included"
    )
    assert len(sent) < 90


def test_closed_port_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "ConnectionRefusedError" in send_to(port).error


def test_response_with_invalid_bytes_is_storable() -> None:
    with Receiver(behave=answer(500, b"\x00\xff\xed\xa0\x80ok")) as receiver:
        response = send_to(receiver.port)
    assert response.error == "The answer was 500."
    assert response.text.endswith("ok")
    assert "\0" not in response.text
    response.text.encode()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    own = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + own)
    return path


@pytest.fixture
def _trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    sending._tls_context.cache_clear()
    yield
    sending._tls_context.cache_clear()


def tls_context(certificate: Path) -> tuple[ssl.SSLContext, list[str | None]]:
    """Return a server context and the list of server names that clients ask for."""
    server_names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _socket, name, _context: server_names.append(name)
    return context, server_names


@pytest.mark.usefixtures("_trusted")
def test_certificate_is_verified_against_the_name(certificate: Path) -> None:
    context, server_names = tls_context(certificate)
    with Receiver(tls=context) as receiver:
        response = send_webhook(request_to(receiver.port, scheme="https"), policy=POLICY, resolve=on_loopback)
        assert (response.status_code, response.error) == (200, "")
        other = send_webhook(
            request_to(receiver.port, scheme="https", host="other.example"), policy=POLICY, resolve=on_loopback
        )
    assert server_names == [NAME, "other.example"]
    assert "CERTIFICATE_VERIFY_FAILED" in other.error
    assert len(receiver.received) == 1


def test_untrusted_certificate_is_refused(certificate: Path) -> None:
    context, _ = tls_context(certificate)
    with Receiver(tls=context) as receiver:
        response = send_webhook(request_to(receiver.port, scheme="https"), policy=POLICY, resolve=on_loopback)
    assert "CERTIFICATE_VERIFY_FAILED" in response.error
    assert receiver.received == []
