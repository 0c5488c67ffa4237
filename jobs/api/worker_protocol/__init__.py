"""Routes that workers on other machines call.

Every write names the attempt it holds and fails if the worker no longer holds it. `inputs` bounds what workers send.
Entry points: the views of `leases` for the worker itself, those of `runs` for its executions.
"""
