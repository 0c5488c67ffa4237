"""The `punctual` command: a REST client of a server, which imports none of the server's code.

Entry points: `__main__.run`; `commands`, the table of all commands.
"""

VERSION = "0.1.0"
