"""One line without an end, in pieces that cut characters in two."""

import os

euro = "\u20ac".encode()
data = euro * 700_000
for start in range(0, len(data), 65_521):
    os.write(1, data[start : start + 65_521])
