-- dependencies.sweep_blocked. Index: execution_blocked.
SELECT id, run_id, trigger = 'schedule' FROM jobs_execution
 WHERE state = 'blocked' AND id > %(after)s
 ORDER BY id
 LIMIT %(limit)s
