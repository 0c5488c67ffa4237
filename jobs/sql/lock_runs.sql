-- dependencies.resolve_dependents. No table. Alone in its statement: what is counted next must be read after the lock was
-- got. In ascending order, so that two who wait never wait for each other.
SELECT number,
       CASE WHEN %(wait)s THEN pg_advisory_xact_lock(hashtext('punctual.runs'), number)::text IS NOT NULL
            ELSE pg_try_advisory_xact_lock(hashtext('punctual.runs'), number) END
  FROM unnest(%(numbers)s::int[]) AS number
