"""One module per API resource: its records, and a class with its calls, which `Client` inherits.

Entry point: `base.ApiCalls`, the base of these classes.
"""
