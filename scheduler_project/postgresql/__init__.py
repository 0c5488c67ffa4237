"""The database backend: Django's own, but for how its pool finds out that a connection is dead."""
