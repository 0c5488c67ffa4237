"""Cases for standard input from the worker's files; standard library only, like `cases`."""

import os
import tempfile
from pathlib import Path

from tests.integration.workers.sandbox.cases import CASES, case
from tests.support.driving import PATH, execute
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import Program

__all__ = ["CASES"]


@case
def stored_stdin_is_read_in_place_and_unchanged(sandbox: Sandbox) -> None:
    content = b"one\ntwo\n" * 10_000
    attack = """
        for way in /dev/stdin /proc/self/fd/0; do (echo x >$way); (echo x >>$way); (echo x 1<>$way); done
        chmod 777 /dev/stdin; truncate -s 0 /dev/stdin; touch -d 2001-01-01 /dev/stdin; ls /proc/self/fd/0/..
        exec 2>&1; stat -L -c %i /dev/stdin; tail -c 4 /dev/stdin; cat
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "content")
        path.write_bytes(content)
        path.chmod(0o444)
        before = path.stat()
        descriptor = os.open(path, os.O_RDONLY)
        inputs = Sandbox(sandbox._host, inputs=Path(directory))
        try:
            os.lseek(descriptor, 5, os.SEEK_SET)
            result = execute(inputs, Program(("/bin/sh", "-c", attack), PATH, stdin=descriptor))
            after = path.stat()
            path.unlink()
            gone = execute(inputs, Program(("/bin/cat",), PATH, stdin=descriptor))
        finally:
            inputs.close()
            os.close(descriptor)
    assert gone.stdout == content, "even after an eviction"
    inode, _, rest = result.stdout.partition(b"\n")
    assert rest == b"two\n" + content
    assert (after.st_mode, after.st_size, after.st_mtime_ns) == (before.st_mode, before.st_size, before.st_mtime_ns)
    if sandbox._host.users is not None or sandbox._host.slots_share:
        assert int(inode) == before.st_ino, "no copy in the worker's memory"
