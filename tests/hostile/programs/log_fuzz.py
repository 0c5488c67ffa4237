"""Writes what nobody expects in a log, in pieces that are cut anywhere: the same bytes every time, and a long line."""

import os
import random

PIECES = [
    b"\x1b[2J\x1b]0;owned\x07", b"\x9b31m", b"\x00", b"\r", b"\r\n", b"\n", b"\t", b"\x7f", b"\x08\x08", b"\x85",
    "\u202eevil\u2066".encode(), "\u2028\u2029\ufeff".encode(), "\U000e0041".encode(), "\u20ac\U0001f600".encode(),
    b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80", b"\xe2\x82", b"\xff\xfe", b"plain words\n",
    b"</td><script>alert(1)</script>", b"&lt;\"'{{ x }}",
]  # fmt: skip
LONG_LINE = 10 * 2**20


def make_bytes(seed: int) -> bytes:
    chance = random.Random(seed)  # noqa: S311 - the same bytes every time
    return b"".join(chance.choice(PIECES) for _ in range(2000)) + chance.randbytes(2000)


def main() -> None:
    for descriptor in (1, 2):
        data, chance = make_bytes(descriptor), random.Random(0)  # noqa: S311
        while data:
            cut = os.write(descriptor, data[: chance.randrange(1, 700)])
            data = data[cut:]
    rest = b"x" * LONG_LINE
    while rest:
        rest = rest[os.write(1, rest[: 2**20]) :]


if __name__ == "__main__":
    main()
