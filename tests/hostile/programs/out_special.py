"""FIFOs, sockets and devices among the outputs: opening one must neither wait nor do anything."""

import os
import socket
import stat

os.chdir("out")
os.mkfifo("fifo")
os.mkfifo("result.json")
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    socket.socket(socket.AF_UNIX, kind).bind(f"socket-{int(kind)}")
for name, mode in (("character", stat.S_IFCHR), ("block", stat.S_IFBLK)):
    try:
        os.mknod(name, mode | 0o666, os.makedev(1, 5))
        print("ESCAPED device node")
    except OSError:
        print("held", name)
with open("file", "w") as file:
    file.write("mine")
