"""What happens to an execution, from its creation to its outcome.

Only `transitions` writes states, by compare-and-set on state, attempt, worker and incarnation. What follows from an
outcome (delays, dependents, retries) never delays or undoes it.
Entry points: `transitions`, `attempts.finish_attempt`, `completion.on_finished`, `execution_list.list_executions`.
"""
