"""Job definitions: submission, edits, versions, dependencies, and commands until deletion.

A job's versions are immutable; an execution runs the version in force when it fired. A refused
submission stores nothing.
Entry points: `submission.prepare_jobs`, `submission.store_jobs`, `editing.edit_job`, `lifecycle`, `job_list.list_jobs`.
"""
