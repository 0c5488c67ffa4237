"""supervisord, which restarts the processes of the stack: its configuration and a client.

Entry points: `configuration.start_supervisor`, `client.SupervisorClient`.
"""
