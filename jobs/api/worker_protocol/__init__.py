"""Routes that workers on other machines call: `leases` for the worker itself, `runs` for its executions.

Every write names the attempt it holds and fails if the worker no longer holds it. `inputs` bounds what workers send.
"""
