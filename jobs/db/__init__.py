"""Access to Postgres and Redis that every capability shares.

Every statement and every transaction has a timeout, every list a page, and a slow or absent Redis delays no caller.
Entry points: `sql` (named statements), `transactions.with_timeouts`, `locks`, `keyset`, `wakeups`, `due_window`.
"""
