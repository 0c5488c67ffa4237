"""Addresses that a run with a network can and cannot reach, as plain functions in an isolated world.

They run as root and as an ordinary user, each in a separate process; hence the standard library only.
"""

import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tests.integration.workers.sandbox.network_world import (
    GROUP,
    NAME,
    OWN_PRIVATE,
    OWN_PUBLIC,
    PORT,
    PUBLIC,
    RESOLVER,
    World,
)
from tests.support.driving import MEBIBYTE, Recorder, Result, children, execute, limits, slot_cgroups, words
from tests.support.waiting import eventually
from tests.support.worker_process import serve
from workers.sandbox.errors import SandboxError, SandboxUnavailable
from workers.sandbox.host import Host, detect_host, enable_network
from workers.sandbox.network.rules import NetworkRules
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import ExitReason, Program, Stream

CASES: list[Callable[[World, Host], None]] = []
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
PRIVATE = ["10.3.3.3", "172.20.0.1", "192.168.1.1"]
BLOCKED = [
    *(*PRIVATE, RESOLVER, "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("198.18.0.1", "203.0.113.9", "240.0.0.1", "255.255.255.255", "0.0.0.1", GROUP),
    *("127.0.0.1", "127.8.8.8", OWN_PUBLIC, OWN_PRIVATE),
    *("10.0.2.2", "10.0.2.3", "10.0.2.50", "10.0.2.255"),  # the run's own network, where only DNS responds
]
# Tries every address with every protocol, with and without bypassing the routes.
PROBE = """
import errno, json, socket, sys
def ask(address, kind, around):
    s = socket.socket(socket.AF_INET, getattr(socket, kind))
    s.settimeout(0.2 if "--quick" in sys.argv and address != "PUBLIC" else 5)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    if around:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"tap0")
    if around and kind == "SOCK_DGRAM":
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                     bytes(8) + socket.if_nametoindex("tap0").to_bytes(4, sys.byteorder))
    try:
        s.connect((address, PORT))
        s.sendall(b"hello")
        return s.recv(100).decode()
    except OSError as error:
        return errno.errorcode.get(error.errno, "ETIMEDOUT")
print(json.dumps({f"{address} {kind} {around}": ask(address, kind, around)
                  for address in sys.argv[1].split(",")
                  for kind in ("SOCK_STREAM", "SOCK_DGRAM") for around in (0, 1)}))
""".replace("PORT", str(PORT)).replace("PUBLIC", PUBLIC)


def case(function: Callable[[World, Host], None]) -> Callable[[World, Host], None]:
    CASES.append(function)
    return function


def online(script: str, *args: str) -> Program:
    return Program(("/bin/bash", "-c", script, "bash", *args), ENVIRONMENT, network=True)


def run_once(host: Host, program: Program) -> Result:
    sandbox = Sandbox(host)
    try:
        return execute(sandbox, program)
    finally:
        sandbox.close()


def probe(host: Host, *addresses: str) -> dict[str, str]:
    program = Program(("python3", "-c", PROBE, ",".join(addresses), "--quick"), ENVIRONMENT, network=True)
    result = run_once(host, program)
    assert result.outcome.exit_code == 0, result.stderr
    answers: dict[str, str] = json.loads(result.stdout)
    return answers


def slirps() -> list[int]:
    return [pid for pid in children(os.getpid()) if _name(pid) == "slirp4netns"]


@case
def public_address_is_reached(world: World, host: Host) -> None:
    assert set(probe(host, PUBLIC).values()) == {"echo hello"}
    assert {("outside", "tcp", PUBLIC), ("outside", "udp", PUBLIC)} == world.asked


@case
def private_and_machine_addresses_are_not_reached(world: World, host: Host) -> None:
    answers = probe(host, *BLOCKED, PUBLIC)
    assert {answer for key, answer in answers.items() if key.startswith(f"{PUBLIC} ")} == {"echo hello"}
    assert [key for key, answer in answers.items() if "echo" in answer and not key.startswith(f"{PUBLIC} ")] == []
    # the last request was answered, so earlier packets have arrived
    assert world.asked == {("outside", "tcp", PUBLIC), ("outside", "udp", PUBLIC)}, world.asked


@case
def routes_and_policies_both_refuse_at_once(world: World, host: Host) -> None:
    answers = probe(host, "169.254.169.254", "192.168.1.1", GROUP)
    assert {answer for key, answer in answers.items() if key.endswith("0")} == {"EACCES"}, answers
    assert {answer for key, answer in answers.items() if key.endswith("1")} == {"EPERM"}, answers


@case
def names_resolve_through_the_machines_resolver(world: World, host: Host) -> None:
    script = f"cat /etc/resolv.conf; exec 5<>/dev/tcp/{NAME}/{PORT}; echo hi >&5; cat <&5"
    result = run_once(host, online(script))
    assert words(result.stdout) == ["nameserver", "10.0.2.3", "echo", "hi"], result
    assert world.asked == {("outside", "dns", RESOLVER), ("outside", "tcp", PUBLIC)}


@case
def names_resolve_through_configured_resolvers(world: World, host: Host) -> None:
    chosen = enable_network(host, NetworkRules(resolvers=(IPv4Address("9.9.9.9"),)))
    result = run_once(chosen, online(f"exec 5<>/dev/tcp/{NAME}/{PORT}; echo hi >&5; cat <&5"))
    assert words(result.stdout) == ["echo", "hi"], result
    assert world.asked == {("outside", "dns", "9.9.9.9"), ("outside", "tcp", PUBLIC)}


@case
def only_allowed_ranges_are_reached(world: World, host: Host) -> None:
    allowed = tuple(map(IPv4Network, ("10.3.0.0/16", "10.0.0.0/14", f"{OWN_PRIVATE}/32")))
    answers = probe(
        enable_network(host, NetworkRules(allowed)), "10.3.3.3", OWN_PRIVATE, *PRIVATE[1:], "10.4.0.1", "10.0.2.2"
    )
    assert {key.split()[0] for key, answer in answers.items() if "echo" in answer} == {"10.3.3.3", OWN_PRIVATE}
    assert {address for _, _, address in world.asked} == {"10.3.3.3", OWN_PRIVATE}


@case
def run_has_its_own_loopback(world: World, host: Host) -> None:
    listen = f"import socket; s = socket.create_server(('127.0.0.1', {PORT})); print('up', flush=True)"
    server = f"{listen}; s.accept()[0].send(b'mine')"
    script = f'exec 6< <(exec python3 -c "{server}"); read <&6; cat < /dev/tcp/127.0.0.1/{PORT}'
    assert run_once(host, online(script)).stdout == b"mine"
    assert world.asked == set()


@case
def run_without_network_has_none(world: World, host: Host) -> None:
    sandbox = Sandbox(host)
    script = "tail -n +3 /proc/net/dev | cut -d: -f1; wc -l < /proc/net/route"
    try:
        seen = [
            words(execute(sandbox, replace(online(script), network=network)).stdout) for network in (True, False, True)
        ]
    finally:
        sandbox.close()
    assert seen[1] == ["lo", "1"], "even in a slot whose last run had one"
    assert [sorted(each[:2]) for each in seen[::2]] == [["lo", "tap0"]] * 2
    with refusal(SandboxError, "PUNCTUAL_WORKER_NETWORK"):
        run_once(replace(host, network=None), online("true"))


@case
def program_cannot_change_the_blocklist(world: World, host: Host) -> None:
    change = (
        "import socket, struct\n"
        "s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n"
        "route = struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 254, 4, 0, 1, 0)\n"
        "s.send(struct.pack('=IHHII', 28, 25, 5, 1, 0) + route)\n"
        "print(struct.unpack_from('=i', s.recv(999), 16)[0])\n"
    )
    result = run_once(host, replace(online(""), argv=("python3", "-c", change)))
    assert result.stdout == b"-1\n", result


@case
def receipt_describes_the_network(world: World, host: Host) -> None:
    receipt = run_once(host, online("true")).outcome.receipt
    details = receipt["network_details"]
    assert receipt["network"] is True
    assert isinstance(details, dict)
    assert {"169.254.0.0/16", "10.0.0.0/8", f"{OWN_PUBLIC}/32"} <= set(details["blocked"])
    json.dumps(receipt)


@case
def network_leaves_nothing_behind(world: World, host: Host) -> None:
    sandbox = Sandbox(host)
    execute(sandbox, online("true"))
    descriptors = len(os.listdir("/proc/self/fd"))
    for script, wall_seconds, reason in (
        ("true", 20.0, ExitReason.EXIT),
        ("sleep 1000", 0.1, ExitReason.TIMEOUT),
        ("echo ready; sleep 1000", 20.0, ExitReason.KILLED),
    ):
        with sandbox.start(online(script), limits(wall_seconds=wall_seconds)) as run:
            seen = slirps()
            outcome = run.stream(Recorder(lambda _: run.kill()))
        assert outcome.reason is reason
        assert len(seen) == 1
        assert slirps() == []
    assert len(os.listdir("/proc/self/fd")) == descriptors
    sandbox.close()
    assert slot_cgroups(os.getpid()) == []


@case
def failed_connection_leaves_nothing_behind(world: World, host: Host) -> None:
    assert host.network is not None
    broken = replace(host, network=replace(host.network, slirp=Path("/bin/false")))
    sandbox = Sandbox(broken)
    execute(sandbox, replace(online("true"), network=False))
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with refusal(SandboxError, "could not connect the run to a network: "):
            execute(sandbox, online("true"))
    sandbox.close()
    assert len(os.listdir("/proc/self/fd")) < descriptors
    assert slirps() == []


@case
def slirp4netns_exits_with_a_killed_worker(world: World, host: Host) -> None:
    ready, wake = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            sandbox = Sandbox(host)
            with sandbox.start(online("echo ready; sleep 1000"), limits()) as run:
                run.stream(_sender(wake))
        finally:
            os._exit(1)
    wake.close()
    assert ready.recv(100) == b"ready\n"
    ready.close()
    (slirp,) = [child for child in children(pid) if _name(child) == "slirp4netns"]
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert eventually(lambda: _name(slirp) != "slirp4netns")


@case
def slirp4netns_is_in_the_runs_cgroup(world: World, host: Host) -> None:
    sandbox = Sandbox(host)
    with sandbox.start(online("echo ready; read"), limits(memory=64 * MEBIBYTE)) as run:
        (slirp,) = slirps()
        own = run.receipt["uid"]
        status = Path(f"/proc/{slirp}/status").read_text()
        open_files = next(x for x in Path(f"/proc/{slirp}/limits").read_text().splitlines() if "open files" in x)
        cgroups = Path(f"/proc/{slirp}/cgroup").read_text()
        run.kill()
        run.stream(Recorder())
    sandbox.close()
    assert ("punctual-slot-" in cgroups) == (host.cgroup_mode != "none")
    assert open_files.split()[3:5] == ["1024", "1024"]
    assert f"Uid:\t{own}\t{own}\t{own}" in status
    assert "CapEff:\t0000000000000400" in status, "CAP_NET_BIND_SERVICE, in the slot's user namespace only"
    assert "Seccomp:\t2" in status


@case
def slirp4netns_sees_nothing_of_the_machine_but_its_resolver(world: World, host: Host) -> None:
    sandbox = Sandbox(host)
    with sandbox.start(online("echo ready; read"), limits()) as run:
        (slirp,) = slirps()
        mounted = [line.split()[4] for line in Path(f"/proc/{slirp}/mountinfo").read_text().splitlines()]
        run.kill()
        run.stream(Recorder())
    sandbox.close()
    assert {"/", *(f"/{path.split('/')[1]}" for path in mounted)} == {"/", "/etc", "/run"}, mounted


@case
def slirp4netns_without_hardening_is_refused(world: World, host: Host) -> None:
    for option in ("--enable-sandbox", "--enable-seccomp"):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory).chmod(0o755)
            weak = Path(directory, "slirp4netns")
            weak.write_text(f'#!/bin/sh\ncase "$*" in *{option}*) exit 1; esac\nexec slirp4netns "$@"\n')
            weak.chmod(0o755)
            os.environ["PUNCTUAL_SLIRP4NETNS"] = str(weak)
            try:
                with refusal(SandboxUnavailable, "--enable-sandbox --enable-seccomp"):
                    enable_network(host, NetworkRules())
            finally:
                del os.environ["PUNCTUAL_SLIRP4NETNS"]


@case
def missing_slirp4netns_is_explained(world: World, host: Host) -> None:
    os.environ["PUNCTUAL_SLIRP4NETNS"] = "/bin/true"
    try:
        with refusal(SandboxUnavailable, "install"):
            enable_network(host, NetworkRules())
    finally:
        del os.environ["PUNCTUAL_SLIRP4NETNS"]
    with refusal(SandboxUnavailable, "namespaces"):
        enable_network(replace(host, slots_share=False), NetworkRules())


@contextlib.contextmanager
def refusal(kind: type[Exception], part: str) -> Iterator[None]:
    message = ""
    try:
        yield
    except kind as error:
        message = str(error)
    assert part in message, message


def _sender(channel: socket.socket) -> Callable[[Stream, bytes], None]:
    def send(stream: Stream, data: bytes) -> None:
        channel.sendall(data)

    return send


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def main() -> int:
    world = World()
    cases = {function.__name__: function for function in CASES}
    with tempfile.TemporaryDirectory() as directory:
        world.enter(Path(directory))
        host = enable_network(detect_host(), NetworkRules())

        def check(name: str) -> None:
            world.asked.clear()
            cases[name](world, host)

        serve(check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
