"""Pure values and rules: states, outcomes, retry policy, recurrence, packing, errors, limits.

Values in, values out: no clock, no database, no network. Everything else may import it; it imports only itself.
Entry points: `states`, `errors`, `job_spec`, `recurrence`, `packing`, `worker_protocol`.
"""
