"""The database backend: Django's, with cheaper checks of pooled connections and prepared statements.

Entry points: `base.DatabaseWrapper`, `pool_shares.set_thread_shares`.
"""
