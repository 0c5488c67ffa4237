"""Routes of executions and what belongs to them: status, logs, outputs, artifacts and dead letters."""
