-- name: find_longest_ready
-- Executions that have been ready for long: the first of each queue, then the second of each, and so on; and the first
-- of each line of a job or an owner, longest wait first. So a long queue or line never hides the others.
-- Indexes: execution_candidates, execution_lines, execution_owner_lines; each line costs one index lookup.
WITH RECURSIVE job_lines (job_id, job_line) AS (
    (SELECT p.job_id, p.job_line FROM jobs_execution p
      WHERE p.phase = 'ready' AND p.job_line IS NOT NULL ORDER BY p.job_id, p.job_line LIMIT 1)
    UNION ALL
    SELECT next.job_id, next.job_line
      FROM job_lines l
     CROSS JOIN LATERAL (
           SELECT p.job_id, p.job_line FROM jobs_execution p
            WHERE p.phase = 'ready' AND p.job_line IS NOT NULL AND (p.job_id, p.job_line) > (l.job_id, l.job_line)
            ORDER BY p.job_id, p.job_line LIMIT 1) next
), owner_lines (owner_id) AS (
    (SELECT p.owner_line FROM jobs_execution p
      WHERE p.phase = 'ready' AND p.owner_line IS NOT NULL ORDER BY p.owner_line LIMIT 1)
    UNION ALL
    SELECT next.owner_line
      FROM owner_lines l
     CROSS JOIN LATERAL (
           SELECT p.owner_line FROM jobs_execution p
            WHERE p.phase = 'ready' AND p.owner_line > l.owner_id ORDER BY p.owner_line LIMIT 1) next
)
(SELECT first.id
   FROM jobs_queue q
  CROSS JOIN LATERAL (
        SELECT c.id, c.ready_at, row_number() OVER (ORDER BY c.rank, c.id) AS place
          FROM (SELECT e.id, e.ready_at, e.rank FROM jobs_execution e
                 WHERE e.queue_id = q.id AND e.phase = 'ready' AND e.job_line IS NULL AND e.owner_line IS NULL
                   AND e.ready_at < statement_timestamp() - %(bound)s::interval
                 ORDER BY e.rank, e.id LIMIT %(limit)s) c) first
  WHERE NOT q.paused
  ORDER BY first.place, first.ready_at
  LIMIT %(limit)s)
 UNION
(SELECT first.id
   FROM job_lines l
  CROSS JOIN LATERAL (
        SELECT e.id, e.ready_at FROM jobs_execution e
         WHERE e.phase = 'ready' AND e.job_id = l.job_id AND e.job_line = l.job_line
           AND e.ready_at < statement_timestamp() - %(bound)s::interval
         ORDER BY e.rank, e.id LIMIT 1) first
  ORDER BY first.ready_at
  LIMIT %(limit)s)
 UNION
(SELECT first.id
   FROM owner_lines l
  CROSS JOIN LATERAL (
        SELECT e.id, e.ready_at FROM jobs_execution e
         WHERE e.phase = 'ready' AND e.owner_line = l.owner_id
           AND e.ready_at < statement_timestamp() - %(bound)s::interval
         ORDER BY e.rank, e.id LIMIT 1) first
  ORDER BY first.ready_at
  LIMIT %(limit)s)
