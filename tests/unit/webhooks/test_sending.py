"""Sending to receivers that we do not know: slow, hostile, elsewhere than they were."""

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

from jobs.webhooks import sending
from jobs.webhooks.addresses import Reach, Target, parse_networks
from jobs.webhooks.sending import Answer, Request, send
from tests.webhook_receiver import Handler, Received, Receiver, answer

REACH = Reach(parse_networks(["127.0.0.1/32"]), http=True)
NAME = "receiver.example"


def on_loopback(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


def request_to(port: int, *, host: str = NAME, scheme: str = "http") -> Request:
    return Request(Target(scheme, host, port, "/hook?a=b"), {"X-One": "1"}, b'{"a":1}')


def send_to(port: int, *, seconds: float = 5) -> Answer:
    return send(request_to(port), reach=REACH, resolve=on_loopback, total_seconds=seconds)


@contextmanager
def serving(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of bytes, for what no library would send."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connected, _ = server.accept()
                    with connected, suppress(OSError):
                        behave(connected)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_what_is_sent_arrives_and_the_beginning_of_the_answer_is_kept() -> None:
    with Receiver(behave=answer(202, b"x" * 100_000)) as receiver:
        got = send_to(receiver.port)
    assert got == Answer(202, "", "x" * 1024)
    (received,) = receiver.received
    assert (received.path, received.body) == ("/hook?a=b", b'{"a":1}')
    assert received.headers["host"] == f"{NAME}:{receiver.port}"
    assert received.headers["x-one"] == "1"


def test_a_redirect_is_not_followed() -> None:
    with Receiver() as inside, Receiver(behave=answer(302, location=inside.url)) as receiver:
        got = send_to(receiver.port)
    assert got.status_code == 302
    assert "redirects are not followed" in got.error
    assert inside.received == []


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert send_to(receiver.port).status_code == 200
    assert proxy.received == []


def test_a_name_is_looked_up_once_and_that_address_is_used() -> None:
    """Whoever answers with a public address first and a private one then gets nothing to the second."""
    asked: list[str] = []

    def rebinding(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    with Receiver() as receiver:
        got = send(request_to(receiver.port), reach=REACH, resolve=rebinding)
        assert got.status_code == 200
        assert asked == [NAME]
        again = send(request_to(receiver.port), reach=REACH, resolve=rebinding)
    assert "public internet" in again.error
    assert len(receiver.received) == 1


def test_a_name_that_stands_for_a_private_address_as_well_is_refused() -> None:
    with Receiver() as receiver:
        got = send(request_to(receiver.port), reach=REACH, resolve=lambda *_: ["127.0.0.1", "10.0.0.1"])
    assert "public internet" in got.error
    assert receiver.received == []


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    reach = Reach(parse_networks(["127.0.0.0/8"]), http=True)
    with Receiver() as receiver:
        got = send(request_to(receiver.port), reach=reach, resolve=lambda *_: ["127.0.0.9", "127.0.0.1"])
    assert got.status_code == 200


def test_a_name_without_an_address_is_told() -> None:
    got = send(request_to(1, host="a.invalid"), reach=REACH)
    assert got == Answer(error="The host's name stands for no address.")
    too_long = send(request_to(1, host="a" * 300), reach=REACH)
    assert too_long.error == "The host's name stands for no address."


def silent(connected: socket.socket) -> None:
    while connected.recv(65536):
        pass


def dripping(connected: socket.socket) -> None:
    connected.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connected.sendall(b"x")
        time.sleep(0.05)  # the other side's, not ours: slow is what it is


def continuing(connected: socket.socket) -> None:
    while True:
        connected.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)


@pytest.mark.parametrize("behave", [silent, dripping, continuing])
def test_who_answers_slowly_has_no_more_than_the_time_for_all(behave: Callable[[socket.socket], None]) -> None:
    with serving(behave) as port:
        began = time.monotonic()
        got = send_to(port, seconds=0.4)
        took = time.monotonic() - began
    assert got == Answer(error="There was no answer in time (3 s to connect, 0.4 s in all).")
    assert 0.3 < took < 2


def test_a_body_without_end_does_not_undo_what_was_said() -> None:
    def endless(handler: Handler, _: Received) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"begun")
        handler.rfile.read(1)

    with Receiver(behave=endless) as receiver:
        assert send_to(receiver.port, seconds=0.4) == Answer(200, "", "")


@pytest.mark.parametrize(
    "said",
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
def test_what_is_no_answer_is_told_and_never_raises(said: bytes) -> None:
    def speak(connected: socket.socket) -> None:
        connected.recv(65536)
        connected.sendall(said)

    with serving(speak) as port:
        got = send_to(port)
    assert got.status_code is None
    assert "There was no answer" in got.error
    assert len(got.error) <= 500
    assert "\0" not in got.error


def test_headers_are_heard_up_to_a_bound() -> None:
    """A hundred lines of 64 KB would be taken by http.client."""
    took: list[int] = []

    def bomb(connected: socket.socket) -> None:
        connected.recv(65536)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connected.sendall(b"HTTP/1.1 200 OK\r\n")
        for _ in range(90):
            connected.sendall(b"X: " + b"y" * 60_000 + b"\r\n")
            took.append(60_000)
        connected.sendall(b"\r\n")

    with serving(bomb) as port:
        got = send_to(port)
    assert got == Answer(error="There was no answer: HTTPException: it is longer than 32768 bytes, headers included")
    assert len(took) < 90


def test_a_closed_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "ConnectionRefusedError" in send_to(port).error


def test_an_answer_of_strange_bytes_is_storable() -> None:
    with Receiver(behave=answer(500, b"\x00\xff\xed\xa0\x80ok")) as receiver:
        got = send_to(receiver.port)
    assert got.error == "The answer was 500."
    assert got.text.endswith("ok")
    assert "\0" not in got.text
    got.text.encode()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
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
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + own)
    return path


@pytest.fixture
def _trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    sending._tls.cache_clear()
    yield
    sending._tls.cache_clear()


def speaking_tls(certificate: Path) -> tuple[ssl.SSLContext, list[str | None]]:
    named: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _socket, name, _context: named.append(name)
    return context, named


@pytest.mark.usefixtures("_trusted")
def test_the_certificate_is_of_the_name_though_the_address_is_used(certificate: Path) -> None:
    context, named = speaking_tls(certificate)
    with Receiver(tls=context) as receiver:
        got = send(request_to(receiver.port, scheme="https"), reach=REACH, resolve=on_loopback)
        assert (got.status_code, got.error) == (200, "")
        other = send(request_to(receiver.port, scheme="https", host="other.example"), reach=REACH, resolve=on_loopback)
    assert named == [NAME, "other.example"]
    assert "CERTIFICATE_VERIFY_FAILED" in other.error
    assert len(receiver.received) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    context, _ = speaking_tls(certificate)
    with Receiver(tls=context) as receiver:
        got = send(request_to(receiver.port, scheme="https"), reach=REACH, resolve=on_loopback)
    assert "CERTIFICATE_VERIFY_FAILED" in got.error
    assert receiver.received == []
