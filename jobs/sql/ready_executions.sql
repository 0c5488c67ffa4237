-- demands.read_ready, for placement and explanations. Indexes: execution_ready, execution_active,
-- execution_unfinished_by_job.
-- In order of rank, each queue by itself and no further than its limit leaves room, so that the cost is that of what is
-- taken, however much waits. What its job's limit holds back, no worker of the pool could ever take, or asks for a network
-- that its owner may not give it, is left out before LIMIT, so that it never hides what could run. What waits for a network,
-- perhaps in vain, goes before nothing of its job that asks for none. OFFSET 0 keeps an ordered walk and a lookup by key what
-- they are: how much waits changes faster than any statistics. Of a job that is not at its limit all of `own` was counted:
-- `active` is exact.
-- Owners who are full are left out before anything else is asked; who has a limit is asked only if somebody has.
-- `given` is no join but a name: the planner looks it up where it is asked, which for nearly every row is nowhere.
SELECT picked.id, picked.cpu, picked.memory_mb, picked.disk_mb, picked.capabilities, picked.resources::text,
       q.id, q.max_concurrency - busy.active, picked.job_id, picked.job_room, picked.pinned_worker_id, picked.overdue,
       whose.owner_id, whose.most
  FROM jobs_queue q
 CROSS JOIN LATERAL (
       SELECT CASE WHEN q.max_concurrency IS NOT NULL THEN
                   (SELECT count(*) FROM jobs_execution a
                     WHERE a.queue_id = q.id AND a.state IN ('queued', 'claimed', 'running')) END AS active) busy
 CROSS JOIN LATERAL (
       SELECT e.id, e.rank, e.job_id, e.pinned_worker_id, v.cpu, v.memory_mb, v.disk_mb, v.resources,
              v.capabilities || v.runtime::varchar(63) || CASE WHEN v.network THEN '{network}'::varchar(63)[] END
                  || CASE WHEN given.inputs THEN '{inputs}'::varchar(63)[] END
                  || CASE WHEN given.secrets THEN '{secrets}'::varchar(63)[] END AS capabilities,
              v.max_concurrency - own.active AS job_room,
              e.ready_at < statement_timestamp() - make_interval(secs => %(reserve_seconds)s) AS overdue
         FROM (SELECT r.id, r.rank, r.job_id, r.version_id, r.pinned_worker_id, r.ready_at FROM jobs_execution r
                WHERE r.state = 'ready' AND r.queue_id = q.id
                  AND (cardinality(%(full_owners)s::int[]) = 0
                       OR NOT EXISTS (SELECT FROM jobs_job j
                                       WHERE j.id = r.job_id AND j.owner_id = ANY(%(full_owners)s::int[])))
                ORDER BY r.rank, r.id OFFSET 0) e
        CROSS JOIN LATERAL (SELECT * FROM jobs_jobversion v WHERE v.id = e.version_id OFFSET 0) v
        CROSS JOIN LATERAL (
              SELECT EXISTS (SELECT FROM jobs_versioninput i WHERE i.version_id = v.id OFFSET 0) AS inputs,
                     EXISTS (SELECT FROM jobs_versionsecret g WHERE g.version_id = v.id OFFSET 0) AS secrets) given
        CROSS JOIN LATERAL (
              SELECT count(*) AS earlier, count(*) FILTER (WHERE o.state <> 'ready') AS active
                FROM (SELECT o.state
                        FROM (SELECT o.state, o.version_id FROM jobs_execution o
                               WHERE o.job_id = e.job_id
                                 AND o.state IN ('backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running')
                                 AND (o.state IN ('queued', 'claimed', 'running')
                                      OR (o.state = 'ready' AND (o.rank, o.id) < (e.rank, e.id))) OFFSET 0) o
                       WHERE o.state <> 'ready' OR o.version_id = e.version_id OR v.network
                          OR NOT EXISTS (SELECT FROM jobs_jobversion n
                                          WHERE n.id = o.version_id AND n.network OFFSET 0)
                       LIMIT coalesce(v.max_concurrency, 0)) o) own
        WHERE (v.max_concurrency IS NULL OR v.max_concurrency > own.earlier)
          AND (NOT v.network OR EXISTS (  -- network_use.may_use_network
               SELECT FROM jobs_job j JOIN auth_user u ON u.id = j.owner_id
                WHERE j.id = e.job_id AND u.is_active
                  AND (u.is_superuser OR EXISTS (
                       SELECT FROM auth_permission p JOIN django_content_type t ON t.id = p.content_type_id
                        WHERE t.app_label = 'jobs' AND p.codename = 'use_network'
                          AND (EXISTS (SELECT FROM auth_user_user_permissions o
                                        WHERE o.user_id = u.id AND o.permission_id = p.id)
                               OR EXISTS (SELECT FROM auth_user_groups m
                                            JOIN auth_group_permissions g ON g.group_id = m.group_id
                                           WHERE m.user_id = u.id AND g.permission_id = p.id))))))
          AND EXISTS (SELECT FROM jobs_worker w
                       WHERE w.pool = %(pool)s AND w.status = 'online' AND w.refusal = ''
                         AND w.lease_until > statement_timestamp()
                         AND (e.pinned_worker_id IS NULL OR w.id = e.pinned_worker_id)
                         AND w.capabilities @> (v.capabilities || v.runtime::varchar(63))
                         AND (NOT v.network OR w.capabilities @> '{network}'::varchar(63)[])
                         AND (w.capabilities @> '{inputs}'::varchar(63)[] OR NOT given.inputs)
                         AND (w.capabilities @> '{secrets}'::varchar(63)[] OR NOT given.secrets)
                         AND w.cpu >= v.cpu AND w.memory_mb >= v.memory_mb AND w.disk_mb >= v.disk_mb
                         AND (v.resources = '{}' OR NOT EXISTS (
                              SELECT FROM jsonb_each_text(v.resources) need
                               WHERE coalesce((w.resources ->> need.key)::bigint, 0) < need.value::bigint)))
        ORDER BY e.rank, e.id
        LIMIT greatest(0, least(%(limit)s, q.max_concurrency - busy.active))) picked
  LEFT JOIN LATERAL (
       SELECT j.owner_id, coalesce(o.concurrent_executions, %(default_executions)s) AS most
         FROM jobs_job j LEFT JOIN jobs_ownerquota o ON o.owner_id = j.owner_id
        WHERE j.id = picked.job_id
          AND (%(default_executions)s > 0
               OR (SELECT EXISTS (SELECT FROM jobs_ownerquota WHERE concurrent_executions > 0))) OFFSET 0) whose
    ON whose.most > 0
 WHERE q.pool = %(pool)s AND NOT q.paused
 ORDER BY picked.rank, picked.id
 LIMIT %(limit)s
