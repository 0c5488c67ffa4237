"""The `punctual` command: a REST client of a server, which imports none of the server's code."""

VERSION = "0.1.0"
