"""Files and directories that their owner may not read."""

import os

os.makedirs("out/closed/inner")
for path in ("out/secret", "out/closed/file", "out/closed/inner/file"):
    with open(path, "w") as file:
        file.write(path)
os.mkdir("out/listed")
with open("out/listed/file", "w") as file:
    file.write("out/listed/file")
os.chmod("out/listed", 0o644)
os.chmod("out/secret", 0)
os.chmod("out/closed/inner", 0o100)
os.chmod("out/closed", 0)
os.chmod("out", 0)
os.chmod("/work", 0)
print("held unreadable")
