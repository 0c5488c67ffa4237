-- name: scan_ready_executions
-- Indexes: execution_candidates, execution_unfinished_of_job, execution_lines, execution_held. For placement and
-- explanations. Scans at most `limit` candidates by rank, after a given position, and returns those with a fate:
--   place    the plan decides: its limits leave capacity, and some worker of the pool could run it
--   line     as many of its job as its limit allows wait ahead of it: it is parked until one of them is gone
--   owner    its owner is at their limit: it is parked until the owner has capacity
-- The others keep waiting: their job is full, their owner may not grant them network access, no worker could ever run
-- them, or the pass tried one of the same shape. A parked execution is no candidate and costs nothing.
-- The limit is that of the execution's own version or of the current one, whichever is lower.
-- An execution that waits for network access blocks no execution of its job that needs none.
-- The planner expects a few rows, whatever waits, since the number of waiting executions changes faster than any
-- statistics. So LIMIT and OFFSET 0 fix the scan and the lookups by key, and no two sets are joined: the planner would
-- compare every row of one with every row of the other. The first candidate of a job, or of a version and worker, looks
-- up what its others share, and windows spread it. Every row has the count of scanned candidates and the last position; a row
-- without a fate carries only those.
WITH queue AS MATERIALIZED (
     SELECT q.id, q.max_concurrency - busy.active AS room
       FROM jobs_queue q
      CROSS JOIN LATERAL (
            SELECT CASE WHEN q.max_concurrency IS NOT NULL THEN
                        (SELECT count(*) FROM jobs_execution a
                          WHERE a.queue_id = q.id AND a.phase = 'held') END AS active) busy
      WHERE q.pool = %(pool)s AND NOT q.paused AND q.id <> ALL(%(full_queues)s::uuid[])
), walked AS MATERIALIZED (
     SELECT r.*, q.room AS queue_room
       FROM queue q
      CROSS JOIN LATERAL (
            SELECT e.id, e.rank, e.job_id, e.version_id, e.queue_id, coalesce(e.pinned_worker_id, %(anywhere)s::uuid) AS pin,
                   e.ready_at < statement_timestamp() - make_interval(secs => %(reserve_seconds)s) AS overdue
              FROM jobs_execution e
             WHERE e.phase = 'ready' AND e.job_line IS NULL AND e.owner_line IS NULL AND e.queue_id = q.id
               AND (e.rank, e.id) > (%(after_rank)s::timestamptz, %(after_id)s::uuid)
             ORDER BY e.rank, e.id LIMIT %(limit)s) r
      WHERE q.room IS NULL OR q.room > 0
      ORDER BY r.rank, r.id LIMIT %(limit)s
), versioned AS MATERIALIZED (
     SELECT w.*, v.max_concurrency, v.network,
            row_number() OVER earlier AS nth, count(*) FILTER (WHERE NOT v.network) OVER earlier AS nth_without_network,
            max(v.max_concurrency) OVER job AS highest, bool_or(v.max_concurrency IS NULL) OVER job AS unlimited
       FROM walked w
      CROSS JOIN LATERAL (SELECT v.max_concurrency, v.network FROM jobs_jobversion v WHERE v.id = w.version_id OFFSET 0) v
     WINDOW job AS (PARTITION BY w.job_id),
            earlier AS (PARTITION BY w.job_id ORDER BY w.rank, w.id ROWS UNBOUNDED PRECEDING)
), active AS MATERIALIZED (
     SELECT o.job_id, count(*) AS number FROM jobs_execution o WHERE o.phase = 'held'
      GROUP BY o.job_id
), counted AS MATERIALIZED (
     SELECT w.*, j.owner_id, j.present, own.active, before.ready, before.without_network
       FROM versioned w
       LEFT JOIN LATERAL (
            -- enough: the highest limit of these executions; no count beyond it matters.
            SELECT j.id, j.owner_id, p.max_concurrency AS present, limits.enough, 2::bigint * limits.enough + 100 AS many
              FROM jobs_job j JOIN jobs_jobversion p ON p.id = j.current_version_id
             CROSS JOIN LATERAL (
                   SELECT coalesce(CASE WHEN w.unlimited THEN coalesce(p.max_concurrency, w.highest)
                                        ELSE least(w.highest, p.max_concurrency) END, 0) AS enough) limits
             WHERE j.id = w.job_id AND w.nth = 1 OFFSET 0) j ON true
       LEFT JOIN LATERAL (
            -- Count active executions among the job's unparked ones, unless these are far more than its limit: then most
            -- are blocked or backing off, and reading the active executions of all jobs costs less.
            SELECT CASE WHEN count(*) < j.many THEN count(*) FILTER (WHERE o.phase = 'held')
                        ELSE coalesce((SELECT a.number FROM active a WHERE a.job_id = w.job_id), 0) END AS active
              FROM (SELECT o.phase FROM jobs_execution o
                     WHERE o.job_id = w.job_id AND o.job_line IS NULL
                       AND o.ended_at IS NULL
                     LIMIT CASE WHEN j.enough > 0 THEN j.many ELSE 0 END) o
            HAVING w.nth = 1) own ON true
       LEFT JOIN LATERAL (
            -- How many of the job rank before the position where this scan starts.
            SELECT (SELECT count(*)
                      FROM (SELECT FROM jobs_execution o
                             WHERE o.job_id = w.job_id AND o.job_line IS NULL AND o.phase = 'ready'
                               AND o.ended_at IS NULL
                               AND (o.rank, o.id) <= (%(after_rank)s::timestamptz, %(after_id)s::uuid)
                             LIMIT j.enough) o) AS ready,
                   (SELECT count(*)
                      FROM (SELECT FROM jobs_execution o
                             WHERE o.job_id = w.job_id AND o.job_line IS NULL AND o.phase = 'ready'
                               AND o.ended_at IS NULL
                               AND (o.rank, o.id) <= (%(after_rank)s::timestamptz, %(after_id)s::uuid)
                               AND NOT (SELECT n.network FROM jobs_jobversion n WHERE n.id = o.version_id)
                             LIMIT j.enough) o) AS without_network
             WHERE w.nth = 1 AND %(after_id)s::uuid <> %(anywhere)s::uuid OFFSET 0) before ON true
), evaluated AS MATERIALIZED (
     SELECT c.id, c.rank, c.job_id, c.version_id, c.queue_id, c.pin, c.overdue, c.queue_room, c.network,
            first_value(c.owner_id) OVER job AS owner_id, first_value(c.active) OVER job AS active,
            least(c.max_concurrency, first_value(c.present) OVER job) AS most,
            CASE WHEN c.network THEN coalesce(first_value(c.ready) OVER job, 0) + c.nth - 1
                 ELSE coalesce(first_value(c.without_network) OVER job, 0) + c.nth_without_network - 1 END AS earlier
       FROM counted c
     WINDOW job AS (PARTITION BY c.job_id ORDER BY c.nth)
), judged AS MATERIALIZED (
     SELECT *, row_number() OVER (PARTITION BY fate, version_id, pin ORDER BY rank, id) AS nth_alike
       FROM (SELECT *, CASE WHEN earlier >= most THEN 'line'
                            WHEN owner_id = ANY(%(full_owners)s::int[]) THEN 'owner'
                            WHEN network AND owner_id = ANY(%(without_network)s::int[]) THEN NULL
                            WHEN most IS NULL OR active + earlier < most THEN 'place' END AS fate
               FROM evaluated) e
), tried AS MATERIALIZED (
     SELECT * FROM json_to_recordset(%(unplaceable)s::json)
            AS t (cpu float8, memory_mb int, disk_mb int, capabilities varchar(63)[], resources jsonb, pin uuid, overdue bool)
), shaped AS MATERIALIZED (
     SELECT j.*, v.cpu, v.memory_mb, v.disk_mb, v.resources, v.capabilities,
            v.cpu IS NOT NULL AND (v.cpu, v.memory_mb, v.disk_mb, v.capabilities, v.resources, j.pin) IN (
                SELECT t.cpu, t.memory_mb, t.disk_mb, t.capabilities, t.resources, t.pin FROM tried t) AS was_tried,
            v.cpu IS NOT NULL AND (v.cpu, v.memory_mb, v.disk_mb, v.capabilities, v.resources, j.pin) IN (
                SELECT t.cpu, t.memory_mb, t.disk_mb, t.capabilities, t.resources, t.pin FROM tried t WHERE t.overdue)
                AS was_tried_overdue
       FROM judged j
       LEFT JOIN LATERAL (
            SELECT v.cpu, v.memory_mb, v.disk_mb, v.resources,
                   v.capabilities || v.runtime::varchar(63) || CASE WHEN v.network THEN '{network}'::varchar(63)[] END
                       || CASE WHEN EXISTS (SELECT FROM jobs_versioninput i WHERE i.version_id = v.id)
                               THEN '{inputs}'::varchar(63)[] END
                       || CASE WHEN EXISTS (SELECT FROM jobs_versionsecret g WHERE g.version_id = v.id)
                               THEN '{secrets}'::varchar(63)[] END AS capabilities
              FROM jobs_jobversion v
             WHERE v.id = j.version_id AND j.fate = 'place' AND j.nth_alike = 1 OFFSET 0) v
         ON EXISTS (SELECT FROM jobs_worker w
                     WHERE w.pool = %(pool)s AND w.status = 'online' AND w.refusal = ''
                       AND w.lease_until > statement_timestamp()
                       AND (j.pin = %(anywhere)s::uuid OR w.id = j.pin)
                       AND w.capabilities @> v.capabilities
                       AND w.cpu >= v.cpu AND w.memory_mb >= v.memory_mb AND w.disk_mb >= v.disk_mb
                       AND (v.resources = '{}' OR NOT EXISTS (
                            SELECT FROM jsonb_each_text(v.resources) need
                             WHERE coalesce((w.resources ->> need.key)::bigint, 0) < need.value::bigint)))
), found AS MATERIALIZED (
     SELECT s.id, s.rank, s.job_id, s.queue_id, s.queue_room, s.pin, s.overdue, s.network, s.owner_id, s.most, s.active,
            s.fate, first_value(s.cpu) OVER alike AS cpu, first_value(s.memory_mb) OVER alike AS memory_mb,
            first_value(s.disk_mb) OVER alike AS disk_mb, first_value(s.capabilities) OVER alike AS capabilities,
            first_value(s.resources) OVER alike AS resources, first_value(s.was_tried) OVER alike AS was_tried,
            first_value(s.was_tried_overdue) OVER alike AS was_tried_overdue
       FROM shaped s
     WINDOW alike AS (PARTITION BY s.fate, s.version_id, s.pin ORDER BY s.nth_alike)
)
SELECT f.id, f.cpu, f.memory_mb, f.disk_mb, f.capabilities, f.resources::text, f.queue_id, f.queue_room, f.job_id,
       f.most - f.active, nullif(f.pin, %(anywhere)s::uuid), f.overdue, CASE WHEN whose.most > 0 THEN f.owner_id END, whose.most,
       f.fate, f.network, f.owner_id,
       f.fate = 'place' AND f.most IS NOT NULL
           AND EXISTS (SELECT FROM jobs_execution p
                        WHERE p.job_id = f.job_id AND p.phase = 'ready' AND p.job_line IS NOT NULL OFFSET 0),
       reached.walked, reached.rank, reached.id,
       EXISTS (SELECT FROM jobs_execution p WHERE p.phase = 'ready' AND p.owner_line IS NOT NULL)
  FROM (SELECT count(*) AS walked, (array_agg(rank ORDER BY rank DESC, id DESC))[1] AS rank,
               (array_agg(id ORDER BY rank DESC, id DESC))[1] AS id FROM walked) reached
  LEFT JOIN found f
    ON f.fate IN ('line', 'owner')
    OR (f.fate = 'place' AND f.cpu IS NOT NULL
        AND (NOT f.was_tried OR (f.overdue AND NOT f.was_tried_overdue) OR f.id = ANY(%(reserved_for)s::uuid[])))
  LEFT JOIN LATERAL (
       SELECT coalesce(o.concurrent_executions, %(default_executions)s) AS most
         FROM (SELECT f.owner_id) w LEFT JOIN jobs_ownerquota o ON o.owner_id = w.owner_id
        WHERE f.fate = 'place'
          AND (%(default_executions)s > 0
               OR (SELECT EXISTS (SELECT FROM jobs_ownerquota WHERE concurrent_executions > 0))) OFFSET 0) whose
    ON whose.most > 0
 ORDER BY f.rank, f.id

-- name: read_waiting_demand
-- Indexes: execution_held, execution_unfinished_of_job. For explanations. One execution in the columns of a demand,
-- whatever holds it back. A job that is full, counting what runs and what waits ahead, has no capacity for it:
-- scan_ready_executions leaves it out for that.
SELECT e.id, v.cpu, v.memory_mb, v.disk_mb,
       v.capabilities || v.runtime::varchar(63) || CASE WHEN v.network THEN '{network}'::varchar(63)[] END
           || CASE WHEN EXISTS (SELECT FROM jobs_versioninput i WHERE i.version_id = v.id) THEN '{inputs}'::varchar(63)[] END
           || CASE WHEN EXISTS (SELECT FROM jobs_versionsecret g WHERE g.version_id = v.id) THEN '{secrets}'::varchar(63)[] END,
       v.resources::text,
       q.id, q.max_concurrency - busy.active, e.job_id,
       CASE WHEN own.active + own.earlier >= own.most THEN 0 ELSE own.most - own.active END,
       e.pinned_worker_id,
       coalesce(e.ready_at < statement_timestamp() - make_interval(secs => %(reserve_seconds)s), false),
       CASE WHEN whose.most > 0 THEN j.owner_id END, nullif(whose.most, 0)
  FROM jobs_execution e
  JOIN jobs_jobversion v ON v.id = e.version_id
  JOIN jobs_queue q ON q.id = e.queue_id
  JOIN jobs_job j ON j.id = e.job_id
  JOIN jobs_jobversion present ON present.id = j.current_version_id
  LEFT JOIN jobs_ownerquota o ON o.owner_id = j.owner_id
 CROSS JOIN LATERAL (SELECT coalesce(o.concurrent_executions, %(default_executions)s) AS most) whose
 CROSS JOIN LATERAL (
       SELECT count(*) AS active FROM jobs_execution a
        WHERE a.queue_id = q.id AND a.phase = 'held') busy
 CROSS JOIN LATERAL (
       SELECT least(v.max_concurrency, present.max_concurrency) AS most,
              count(*) FILTER (WHERE o.phase = 'held') AS active,
              count(*) FILTER (WHERE o.phase = 'ready' AND (o.rank, o.id) < (e.rank, e.id)
                                     AND (v.network OR NOT n.network)) AS earlier
         FROM jobs_execution o
         JOIN jobs_jobversion n ON n.id = o.version_id
        WHERE o.job_id = e.job_id
          AND o.ended_at IS NULL) own
 WHERE e.id = %(id)s

-- name: read_free_capacity
-- Index: execution_held. For placement and explanations. Allocation is derived from active executions, so it cannot
-- leak. Workers without a free slot are returned on request only.
WITH active AS MATERIALIZED (
     SELECT e.worker_id, v.cpu, v.memory_mb, v.disk_mb, v.resources
       FROM jobs_execution e
       JOIN jobs_worker w ON w.id = e.worker_id AND w.pool = %(pool)s AND w.status = 'online'
       JOIN jobs_jobversion v ON v.id = e.version_id
      WHERE e.phase = 'held')
SELECT w.id, w.incarnation, w.capabilities, w.name,
       w.slots - coalesce(a.slots, 0), w.cpu - coalesce(a.cpu, 0),
       w.memory_mb - coalesce(a.memory_mb, 0), w.disk_mb - coalesce(a.disk_mb, 0),
       coalesce(r.taken, '{}')::text,
       jsonb_build_object('slots', w.slots, 'cpu', w.cpu, 'memory_mb', w.memory_mb, 'disk_mb', w.disk_mb)::text,
       w.resources::text
  FROM jobs_worker w
  LEFT JOIN (SELECT worker_id, count(*) AS slots, sum(cpu) AS cpu, sum(memory_mb) AS memory_mb, sum(disk_mb) AS disk_mb
               FROM active GROUP BY worker_id) a ON a.worker_id = w.id
  LEFT JOIN (SELECT worker_id, jsonb_object_agg(key, amount) AS taken
               FROM (SELECT worker_id, need.key, sum(need.value::bigint) AS amount
                       FROM active CROSS JOIN LATERAL jsonb_each_text(active.resources) need
                      WHERE active.resources <> '{}' GROUP BY worker_id, need.key) counted
              GROUP BY worker_id) r ON r.worker_id = w.id
 WHERE w.pool = %(pool)s AND w.status = 'online' AND w.refusal = '' AND w.lease_until > statement_timestamp()
   AND (%(full_ones)s OR w.slots > coalesce(a.slots, 0))
   -- After a failover no worker has capacity, from the first read of the new primary on: see detect_failover.
   AND NOT EXISTS (
       SELECT FROM jobs_reaperstamp s
        WHERE s.placement_resumes_at > statement_timestamp()
           -- Where Postgres hides its timeline none is stored, and it must not be read.
           OR CASE WHEN s.timeline IS NOT NULL
                   THEN s.timeline <> ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END)
 ORDER BY w.id
