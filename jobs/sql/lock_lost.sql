-- transitions.lose_held and lose_unlisted. Index: execution_active. What the given workers hold, but for the given
-- incarnations and later ones, of which the caller may not know yet; where a list of what the worker runs is given, also what
-- that incarnation claimed long ago and is not in it (a claim or an end that got lost on its way). Taken before the statement that moves them, which must see, in a snapshot of its own, the
-- attempt that a claim began meanwhile. SKIP LOCKED: whoever holds one of them, and for how long, delays nothing else; the
-- next pass of the reaper, or the next renewal, finds it again.
SELECT e.id
  FROM jobs_execution e
  JOIN unnest(%(worker_ids)s::uuid[], %(keep_incarnations)s::bigint[]) AS w (id, keep) ON w.id = e.worker_id
 WHERE e.state IN ('queued', 'claimed', 'running')
   AND (w.keep IS NULL OR e.incarnation < w.keep
        OR (e.incarnation = w.keep AND e.state <> 'queued' AND e.id <> ALL(%(listed)s::uuid[])
            AND e.claimed_at < statement_timestamp() - make_interval(secs => %(unlisted_seconds)s)))
 ORDER BY e.id
   FOR NO KEY UPDATE OF e SKIP LOCKED
