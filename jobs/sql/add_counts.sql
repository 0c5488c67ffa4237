-- counting.add_counts. By primary key, in one order: two that add at once wait for each other, never in a circle.
INSERT INTO jobs_counter (name, value)
SELECT name, amount FROM unnest(%(names)s::text[], %(amounts)s::bigint[]) AS added (name, amount) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET value = jobs_counter.value + excluded.value
