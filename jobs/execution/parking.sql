-- name: park_executions
-- By primary key. Under the pool's lock. SKIP LOCKED: another pass parks what another transaction is moving.
WITH free AS MATERIALIZED (
    SELECT e.id, p.job_line, p.owner_line
      FROM (SELECT * FROM json_to_recordset(%(rows)s::json) AS p (execution_id uuid, job_line smallint, owner_line int)
             ORDER BY execution_id) p
     CROSS JOIN LATERAL (
           SELECT e.id FROM jobs_execution e
            WHERE e.id = p.execution_id AND e.phase = 'ready'
              FOR NO KEY UPDATE SKIP LOCKED) e)
UPDATE jobs_execution e SET job_line = free.job_line, owner_line = free.owner_line
  FROM free WHERE e.id = free.id

-- name: unpark_executions
-- Indexes: execution_lines, execution_unfinished_of_job. Unpark as many executions of each job as its limit allows,
-- less its present candidates, as if nothing of it were active. The limit of the first in line counts: a line is not
-- overtaken. Executions with network access form a line of their own, which blocks only itself. SKIP LOCKED: a row
-- that another transaction moves soon stops being a candidate, and the sweep finds the next.
WITH freed AS MATERIALIZED (
    SELECT next.id
      FROM unnest(%(job_ids)s::uuid[]) AS of (job_id)
      JOIN jobs_job j ON j.id = of.job_id
      JOIN jobs_jobversion present ON present.id = j.current_version_id
     CROSS JOIN (VALUES (1), (2)) AS line (number)
     CROSS JOIN LATERAL (
           SELECT least(v.max_concurrency, present.max_concurrency, %(most)s) AS most
             FROM (SELECT p.version_id FROM jobs_execution p
                    WHERE p.job_id = j.id AND p.phase = 'ready' AND p.job_line = line.number
                    ORDER BY p.rank, p.id LIMIT 1 OFFSET 0) p
             JOIN jobs_jobversion v ON v.id = p.version_id) first
     CROSS JOIN LATERAL (
           SELECT count(*) AS waiting
             FROM (SELECT FROM jobs_execution c JOIN jobs_jobversion v ON v.id = c.version_id
                    WHERE c.job_id = j.id AND c.job_line IS NULL AND c.phase = 'ready'
                      AND c.ended_at IS NULL
                      AND (line.number = 2 OR NOT v.network)
                    LIMIT first.most) c) candidates
     CROSS JOIN LATERAL (
           SELECT p.id FROM jobs_execution p
            WHERE p.job_id = j.id AND p.phase = 'ready' AND p.job_line = line.number
            ORDER BY p.rank, p.id LIMIT first.most - candidates.waiting
              FOR NO KEY UPDATE SKIP LOCKED) next)
UPDATE jobs_execution e SET job_line = NULL FROM freed WHERE e.id = freed.id AND e.phase = 'ready'

-- name: unpark_executions_of_owners
-- Index: execution_owner_lines. For every owner below their limit, unpark as many executions as may be placed, and a
-- few more, since some may fit nowhere. One index lookup finds each owner.
WITH RECURSIVE lined (owner_id) AS (
    (SELECT p.owner_line FROM jobs_execution p
      WHERE p.phase = 'ready' AND p.owner_line IS NOT NULL ORDER BY p.owner_line LIMIT 1)
    UNION ALL
    SELECT next.owner_line
      FROM lined
     CROSS JOIN LATERAL (
           SELECT p.owner_line FROM jobs_execution p
            WHERE p.phase = 'ready' AND p.owner_line > lined.owner_id ORDER BY p.owner_line LIMIT 1) next
), freed AS MATERIALIZED (
    SELECT next.id
      FROM lined
      LEFT JOIN json_to_recordset(%(rooms)s::json) AS r (owner_id int, room int) ON r.owner_id = lined.owner_id
     CROSS JOIN LATERAL (
           SELECT p.id FROM jobs_execution p
            WHERE p.phase = 'ready' AND p.owner_line = lined.owner_id
            ORDER BY p.rank, p.id
            LIMIT CASE WHEN r.room <= 0 THEN 0 ELSE least(greatest(coalesce(2 * r.room, %(most)s), 8), %(most)s) END
              FOR NO KEY UPDATE SKIP LOCKED) next)
UPDATE jobs_execution e SET owner_line = NULL FROM freed WHERE e.id = freed.id AND e.phase = 'ready'

-- name: find_jobs_with_parked
-- Index: execution_lines. The next jobs with parked executions; one index lookup finds each.
WITH RECURSIVE lined (job_id, number) AS (
    (SELECT p.job_id, 1 FROM jobs_execution p
      WHERE p.phase = 'ready' AND p.job_line IS NOT NULL AND p.job_id > %(after)s::uuid
      ORDER BY p.job_id LIMIT 1)
    UNION ALL
    SELECT next.job_id, lined.number + 1
      FROM lined
     CROSS JOIN LATERAL (
           SELECT p.job_id FROM jobs_execution p
            WHERE p.phase = 'ready' AND p.job_line IS NOT NULL AND p.job_id > lined.job_id
            ORDER BY p.job_id LIMIT 1) next
     WHERE lined.number < %(limit)s)
SELECT job_id FROM lined
