"""The OpenAPI schema and its documentation page.

The hooks add what drf-spectacular cannot infer: scopes, error responses and examples.
Entry points: `views.Schema`, `views.Docs`.
"""
