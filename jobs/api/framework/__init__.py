"""What all views share: strict fields, errors, permissions, pagination, idempotency, ETags and event streams.

Nothing here knows a resource.
Entry points: `views.ApiView`, the base of every view; `problems.problem_response`, which makes responses of errors.
"""
