"""Names that could be something else for whoever reads them."""

import os

names = [
    b"new\nline",
    b"carriage\rreturn",
    b"escape\x1b[2J",
    b"bell\x07",
    b"back\\slash",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "turned\u202etxt.exe".encode(),
    "zero\u200bwidth".encode(),
    b"tab\tbed",
    b"..\n",
    b"...",
    b".. ",
    b"-rf",
    b"~",
    b"$(reboot)",
    b"a" * 255,
    b"con:",
    b"%2e%2e%2f",
    b"..%2f..%2fetc%2fpasswd",
    b"C:\\x",
    b"\x7f",
    b" ",
    "\u2028".encode(),
    b"*",
    b"<b>",
    b"';--",
]
for number, name in enumerate(names):
    with open(b"out/" + name, "wb") as file:
        file.write(b"%d" % number)
for name in (b"..", b".", b"", b"a" * 256, b"nul\0"):
    try:
        os.close(os.open(b"out/" + name, os.O_CREAT | os.O_WRONLY))
        print("ESCAPED name", name)
    except (OSError, ValueError):
        continue
print("held names")
