"""Who changed what: one entry for each change, written in the transaction of the change.

Entries are never updated. Values of secrets, arguments and environments are not stored.
Entry points: `log.record_change`, `actor.current_actor`, `entry_list.list_entries`.
"""
