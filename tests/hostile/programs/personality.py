"""Switches off address randomisation or asks for old behaviour, for itself and what it executes."""

from attack import call, escaped, held

for name, value in (("no randomisation", 0x0040000), ("read implies exec", 0x0400000)):
    result = call("personality", value)
    held(name) if result < 0 else escaped(name, result)
held("asking") if call("personality", 0xFFFFFFFF) >= 0 else escaped("asking is harmless, and refused")
