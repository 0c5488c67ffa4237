"""The REST API under /api/v1: parses requests, calls one function of a capability package and renders the result.

`framework` holds what all views share, `resources` the user routes, `worker_protocol` those of workers on other
machines, and `openapi` the schema. Every error is problem+json, and input is taken strictly or rejected.
Entry points: `urls.urlpatterns`, `framework.permissions.REQUIRED_SCOPES`.
"""
