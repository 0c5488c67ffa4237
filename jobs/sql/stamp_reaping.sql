-- reaping.reap_lost_workers. By primary key. True if this pass follows a gap: the database or every beat was away.
INSERT INTO jobs_reaperstamp AS s (id, stamped_at, unbroken_since) VALUES (1, clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO UPDATE
   SET stamped_at = greatest(s.stamped_at, excluded.stamped_at),
       unbroken_since = CASE WHEN s.stamped_at < excluded.stamped_at - make_interval(secs => %(gap_seconds)s)
                             THEN excluded.stamped_at ELSE s.unbroken_since END
RETURNING unbroken_since = stamped_at
