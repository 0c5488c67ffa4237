"""The local stack: databases from wheels and Punctual's own processes, on one machine.

The processes it starts import nothing of it: their environment configures them, as it does in production.
"""
