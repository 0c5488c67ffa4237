"""Interpreter for seccomp BPF programs, so that filters of any architecture run here."""

import operator
import struct

INSTRUCTION = struct.Struct("=HBBI")
CALL = struct.Struct("=iIQ6Q")  # struct seccomp_data

LOAD, AND, RETURN = 0x20, 0x54, 0x06
JUMPS = {0x15: operator.eq, 0x25: operator.gt, 0x35: operator.ge, 0x45: operator.and_}
ALWAYS = 0x05


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return the kernel's action for this call."""
    call = CALL.pack(number, architecture, 0, *(*arguments, *[0] * (6 - len(arguments))))
    instructions = list(INSTRUCTION.iter_unpack(program))
    accumulator = at = 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        if code == LOAD:
            (accumulator,) = struct.unpack_from("=I", call, value)
        elif code == AND:
            accumulator &= value
        elif code == RETURN:
            return int(value)
        elif code == ALWAYS:
            at += value
        else:
            at += if_true if JUMPS[code](accumulator, value) else if_false
