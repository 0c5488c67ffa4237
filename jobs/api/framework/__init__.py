"""What all views share: strict fields, errors, permissions, pagination, idempotency, ETags and event streams.

`views.ApiView` is the base of every view and `problems.problem_response` the only place where errors become responses.
Nothing here knows a resource.
"""
