"""Leaves sockets with a name that hold each other, so that nobody closes them, and a lock on a file of everybody's."""

import array
import fcntl
import os
import socket

from attack import held

named = socket.socket(socket.AF_UNIX)
named.bind("\0left-in-a-circle")
named.listen()
one, other = socket.socketpair()
descriptors = array.array("i", [named.fileno(), one.fileno(), other.fileno()])
one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
lock = os.open("/usr/bin/env", os.O_RDONLY)
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
held("leaving")
