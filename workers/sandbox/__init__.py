"""Runs one untrusted program in bubblewrap, within limits, and says what became of it.

Invariant: this package knows nothing of jobs, Django, Celery or storage.
"""

from workers.sandbox.bubblewrap import find_bwrap
from workers.sandbox.cgroups import clean_leftovers
from workers.sandbox.errors import SandboxError, SandboxUnavailable
from workers.sandbox.host import Host, detect_host, with_network
from workers.sandbox.launcher import memory_file
from workers.sandbox.network_rules import NetworkRules
from workers.sandbox.run import Run
from workers.sandbox.runtimes import Command, Interpreter, command_for, find_runtimes
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.self_test import SelfTest, run_self_test
from workers.sandbox.values import EndReason, InputFile, Limits, Outcome, Program, Stream

__all__ = [
    "Command",
    "EndReason",
    "Host",
    "InputFile",
    "Interpreter",
    "Limits",
    "NetworkRules",
    "Outcome",
    "Program",
    "Run",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "SelfTest",
    "Stream",
    "clean_leftovers",
    "command_for",
    "detect_host",
    "find_bwrap",
    "find_runtimes",
    "memory_file",
    "run_self_test",
    "with_network",
]
