"""User routes, one module per URL root; each view parses, calls a capability package and renders.

Querysets named `list_visible_…` enforce visibility: rows of others are not found.
Entry points: the views that `jobs/api/urls.py` lists; `representations` has the serializers that several share.
"""
