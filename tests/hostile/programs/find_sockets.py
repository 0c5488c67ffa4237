"""The next run: the same names and ports are free, also without SO_REUSEADDR, and nobody listens."""

import socket

from attack import escaped, fails, held

PORT = 47113
for number in (PORT, PORT + 1):
    fails(f"somebody at {number}", lambda number=number: socket.create_connection(("127.0.0.1", number), 1))
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as mine:
            try:
                mine.bind(("127.0.0.1", number))
                held(f"binding {number}")
            except OSError as error:
                escaped(f"binding {number}", error)
with socket.socket(socket.AF_UNIX) as mine:
    try:
        mine.bind("\0left-behind")
        held("abstract")
    except OSError as error:
        escaped("abstract", error)
for name in ("tcp", "udp", "unix"):
    with open(f"/proc/net/{name}") as file:
        lines = file.read().splitlines()[1:]
    held(f"listing of {name}") if not lines else escaped(f"listing of {name}", lines)
