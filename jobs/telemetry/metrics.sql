-- name: increment_counters
-- By primary key, in a fixed order, so that concurrent increments cannot deadlock.
INSERT INTO jobs_counter (name, value)
SELECT name, amount FROM unnest(%(names)s::text[], %(amounts)s::bigint[]) AS added (name, amount) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET value = jobs_counter.value + excluded.value
