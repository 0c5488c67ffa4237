"""One module per command of `manage.py`; each parses its options and calls a capability package."""
