"""The data plane: claims executions, runs their programs in a sandbox and reports what happened.

Entry points: `celery` and `remote`, the two kinds of worker; `setup` builds what both share.
"""
