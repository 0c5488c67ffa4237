"""Where executions run: placement on workers, publication to their queues, explanations of what waits.

One beat at a time places for a pool. Placement and `explain` use the same pure planner, so they agree.
Entry points: `placement.place_ready_executions`, `publishing.republish_unclaimed`, `explain.explain_execution`.
"""
