"""The control plane: jobs, schedules, executions, and the services that move them."""
