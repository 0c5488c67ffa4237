"""Workers: registration, leases, claims of REST workers, and recovery of the executions of lost workers.

A worker whose lease has ended is fenced: it can write nothing more, and its executions are placed again.
Entry points: `leases.register_worker`, `leases.renew_lease`, `remote_claims.await_work`, `reaping.reap_lost_workers`.
"""
