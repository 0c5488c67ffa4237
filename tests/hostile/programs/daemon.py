"""Leaves a daemon behind that would go on changing the outputs after the end."""

import os
import signal
import time

ready, done = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    else:
        for number in range(1, 32):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_IGN)
        os.makedirs("out/kept", exist_ok=True)
        with open("out/kept/file", "w") as file:
            file.write("kept")
        os.write(done, b"x")
        os.closerange(0, 3)
        while True:
            os.rename("out/kept", "out/moved")
            os.symlink("/etc", "out/kept")
            os.remove("out/kept")
            os.rename("out/moved", "out/kept")
            time.sleep(0)
os.read(ready, 1)
print("held daemon", flush=True)
