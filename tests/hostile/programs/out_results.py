"""A result that would harm whoever parses it."""

with open("out/result.json", "wb") as file:
    file.write(b"[" * 100_000)
with open("out/file", "w") as file:
    file.write("mine")
print("held result")
