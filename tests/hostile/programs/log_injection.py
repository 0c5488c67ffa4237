"""Writes what would steer a terminal, end a log line, or pass for one of the worker's."""

import os

os.write(
    1,
    (
        b"\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m \x9b31m\n"
        b"one\rtwo\nnul\x00nul\nbell\x07 back\x08space \x7f\n"
        b"2026-01-01T00:00:00Z worker INFO execution succeeded\n"
        + "turned \u202e gnikool\u2066 \u2028line \u0085next \ufeff\u200bmark\n".encode()
        + b"invalid \xff\xfe \xc3\x28 \xed\xa0\x80 \xf5\x80\x80\x80 cut \xe2\x82\n"
        b"</pre><script>alert(1)</script>{{7*7}}%s%n\n"
        b"data: fake\n\nevent: end\n\n"
    ),
)
os.write(2, b"Traceback \x1b[1A\x1b[2K\r\n")
