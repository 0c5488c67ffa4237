"""The output of programs: appended live, followed, searched, archived to S3 and dropped from Postgres.

Only the worker that has claimed an attempt appends to its log, and no chunk is dropped before it is archived.
Entry points: `store.append_chunks`, `store.read_page`, `search.search_logs`, `archiving.archive_logs`.
"""
