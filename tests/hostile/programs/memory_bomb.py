"""Takes memory and uses it."""

kept = []
while True:
    kept.append(bytearray(b"x") * (1 << 22))
