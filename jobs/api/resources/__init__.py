"""User routes, one module per URL root; each view parses, calls a service and renders.

Querysets named `list_visible_…` enforce visibility: rows of others are not found. `representations` has the serializers
that several resources share.
"""
