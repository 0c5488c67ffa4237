"""The REST interface: parses, calls one service, renders."""
