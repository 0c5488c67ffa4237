"""The `punctual` command: it talks REST to a server and imports nothing of the server's."""

VERSION = "0.1.0"
