"""What a run with a network reaches and what it does not, as plain functions; run in a world of our own.

They run as root and as an ordinary user, each in a process of its own; hence the standard library only.
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

from tests.integration.sandbox.driving import (
    MEBIBYTE,
    Recorder,
    Result,
    children,
    execute,
    limits,
    slot_cgroups,
    words,
)
from tests.integration.sandbox.network_world import (
    GROUP,
    NAME,
    OWN_PRIVATE,
    OWN_PUBLIC,
    PORT,
    PUBLIC,
    RESOLVER,
    World,
)
from tests.waiting import eventually
from tests.worker_process import serve
from workers.sandbox import (
    EndReason,
    Host,
    NetworkRules,
    Program,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
    Stream,
    detect_host,
    with_network,
)

CASES: list[Callable[[World, Host], None]] = []
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
PRIVATE = ["10.3.3.3", "172.20.0.1", "192.168.1.1"]
BLOCKED = [
    *(*PRIVATE, RESOLVER, "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("198.18.0.1", "203.0.113.9", "240.0.0.1", "255.255.255.255", "0.0.0.1", GROUP),
    *("127.0.0.1", "127.8.8.8", OWN_PUBLIC, OWN_PRIVATE),
    *("10.0.2.2", "10.0.2.3", "10.0.2.50", "10.0.2.255"),  # the run's own network, of which only names are answered
]
# Tries every address with every protocol: as any program does, and as one does that goes round the routes.
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
def a_public_address_is_reached(world: World, host: Host) -> None:
    assert set(probe(host, PUBLIC).values()) == {"echo hello"}
    assert {("outside", "tcp", PUBLIC), ("outside", "udp", PUBLIC)} == world.asked


@case
def nothing_private_nor_of_the_machine_is_reached(world: World, host: Host) -> None:
    answers = probe(host, *BLOCKED, PUBLIC)
    assert {answer for key, answer in answers.items() if key.startswith(f"{PUBLIC} ")} == {"echo hello"}
    assert [key for key, answer in answers.items() if "echo" in answer and not key.startswith(f"{PUBLIC} ")] == []
    # asked last and answered: whatever was sent before has arrived by now
    assert world.asked == {("outside", "tcp", PUBLIC), ("outside", "udp", PUBLIC)}, world.asked


@case
def both_routes_and_policies_refuse_and_at_once(world: World, host: Host) -> None:
    answers = probe(host, "169.254.169.254", "192.168.1.1", GROUP)
    assert {answer for key, answer in answers.items() if key.endswith("0")} == {"EACCES"}, answers
    assert {answer for key, answer in answers.items() if key.endswith("1")} == {"EPERM"}, answers


@case
def names_are_found_through_the_machines_resolver(world: World, host: Host) -> None:
    script = f"cat /etc/resolv.conf; exec 5<>/dev/tcp/{NAME}/{PORT}; echo hi >&5; cat <&5"
    result = run_once(host, online(script))
    assert words(result.stdout) == ["nameserver", "10.0.2.3", "echo", "hi"], result
    assert world.asked == {("outside", "dns", RESOLVER), ("outside", "tcp", PUBLIC)}


@case
def names_are_found_through_the_resolvers_that_the_operator_names(world: World, host: Host) -> None:
    chosen = with_network(host, NetworkRules(resolvers=(IPv4Address("9.9.9.9"),)))
    result = run_once(chosen, online(f"exec 5<>/dev/tcp/{NAME}/{PORT}; echo hi >&5; cat <&5"))
    assert words(result.stdout) == ["echo", "hi"], result
    assert world.asked == {("outside", "dns", "9.9.9.9"), ("outside", "tcp", PUBLIC)}


@case
def what_the_operator_allows_is_reached_and_no_more(world: World, host: Host) -> None:
    allowed = tuple(map(IPv4Network, ("10.3.0.0/16", "10.0.0.0/14", f"{OWN_PRIVATE}/32")))
    answers = probe(
        with_network(host, NetworkRules(allowed)), "10.3.3.3", OWN_PRIVATE, *PRIVATE[1:], "10.4.0.1", "10.0.2.2"
    )
    assert {key.split()[0] for key, answer in answers.items() if "echo" in answer} == {"10.3.3.3", OWN_PRIVATE}
    assert {address for _, _, address in world.asked} == {"10.3.3.3", OWN_PRIVATE}


@case
def its_own_loopback_is_its_own(world: World, host: Host) -> None:
    listen = f"import socket; s = socket.create_server(('127.0.0.1', {PORT})); print('up', flush=True)"
    server = f"{listen}; s.accept()[0].send(b'mine')"
    script = f'exec 6< <(exec python3 -c "{server}"); read <&6; cat < /dev/tcp/127.0.0.1/{PORT}'
    assert run_once(host, online(script)).stdout == b"mine"
    assert world.asked == set()


@case
def a_run_that_asks_for_none_has_none(world: World, host: Host) -> None:
    sandbox = Sandbox(host)
    look = "tail -n +3 /proc/net/dev | cut -d: -f1; wc -l < /proc/net/route"
    try:
        seen = [
            words(execute(sandbox, replace(online(look), network=network)).stdout) for network in (True, False, True)
        ]
    finally:
        sandbox.close()
    assert seen[1] == ["lo", "1"], "also in the slot of one that had one"
    assert [sorted(each[:2]) for each in seen[::2]] == [["lo", "tap0"]] * 2
    with refusal(SandboxError, "PUNCTUAL_WORKER_NETWORK"):
        run_once(replace(host, network=None), online("true"))


@case
def the_program_cannot_change_what_is_blocked(world: World, host: Host) -> None:
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
def the_receipt_says_what_it_was_given(world: World, host: Host) -> None:
    receipt = run_once(host, online("true")).outcome.receipt
    details = receipt["network_details"]
    assert receipt["network"] is True
    assert isinstance(details, dict)
    assert {"169.254.0.0/16", "10.0.0.0/8", f"{OWN_PUBLIC}/32"} <= set(details["blocked"])
    json.dumps(receipt)


@case
def nothing_of_it_is_left(world: World, host: Host) -> None:
    sandbox = Sandbox(host)
    execute(sandbox, online("true"))
    descriptors = len(os.listdir("/proc/self/fd"))
    for script, wall_seconds, reason in (
        ("true", 20.0, EndReason.EXIT),
        ("sleep 1000", 0.1, EndReason.TIMEOUT),
        ("echo ready; sleep 1000", 20.0, EndReason.KILLED),
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
def one_that_cannot_connect_leaves_nothing_either(world: World, host: Host) -> None:
    assert host.network is not None
    broken = replace(host, network=replace(host.network, hardening=("--no-such-option",)))
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
def it_leaves_with_a_worker_that_is_killed(world: World, host: Host) -> None:
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
def it_is_held_to_the_limits_of_the_run(world: World, host: Host) -> None:
    sandbox = Sandbox(host)
    with sandbox.start(online("echo ready; read"), limits(memory=64 * MEBIBYTE)) as run:
        (slirp,) = slirps()
        status = Path(f"/proc/{slirp}/status").read_text()
        open_files = next(x for x in Path(f"/proc/{slirp}/limits").read_text().splitlines() if "open files" in x)
        cgroups = Path(f"/proc/{slirp}/cgroup").read_text()
        run.kill()
        run.stream(Recorder())
    sandbox.close()
    assert ("punctual-slot-" in cgroups) == (host.cgroup_mode != "none")
    assert open_files.split()[3:5] == ["1024", "1024"]
    own = os.getuid() if host.drop_uid is None else host.drop_uid
    assert f"Uid:\t{own}\t{own}\t{own}" in status
    assert "CapEff:\t0000000000000000" in status
    assert "Seccomp:\t2" in status


@case
def a_host_without_slirp4netns_says_what_to_do(world: World, host: Host) -> None:
    os.environ["PUNCTUAL_SLIRP4NETNS"] = "/bin/true"
    try:
        with refusal(SandboxUnavailable, "install"):
            with_network(host, NetworkRules())
    finally:
        del os.environ["PUNCTUAL_SLIRP4NETNS"]
    with refusal(SandboxUnavailable, "namespaces"):
        with_network(replace(host, slots_share=False), NetworkRules())


@contextlib.contextmanager
def refusal(kind: type[Exception], part: str) -> Iterator[None]:
    said = ""
    try:
        yield
    except kind as error:
        said = str(error)
    assert part in said, said


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
        host = with_network(detect_host(), NetworkRules())

        def check(name: str) -> None:
            world.asked.clear()
            cases[name](world, host)

        serve(check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
