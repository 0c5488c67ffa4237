"""Leaves a daemon with an abstract socket and ports, and a connection in TIME_WAIT."""

import os
import socket
import time

from attack import held

PORT = 47113
ready, done = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    else:
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind("\0left-behind")
        abstract.listen()
        tcp = socket.create_server(("127.0.0.1", PORT + 1))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", PORT))
        os.write(done, b"x")
        time.sleep(1000)
os.read(ready, 1)
listener = socket.create_server(("127.0.0.1", PORT), reuse_port=False)
client = socket.create_connection(("127.0.0.1", PORT))
server, _ = listener.accept()
server.close()  # who closes first has the TIME_WAIT
client.close()
listener.close()
held("leaving")
