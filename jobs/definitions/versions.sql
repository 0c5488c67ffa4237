-- name: find_queues
-- Index: unique index of queue names. With the time, also if there is none of these queues.
SELECT now.at, q.id, q.name, q.team_id
  FROM (SELECT statement_timestamp() AS at) now
  LEFT JOIN jobs_queue q ON q.name = ANY(%(names)s)
