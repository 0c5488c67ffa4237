-- orphans.forget_log_packs. By primary key, and the index of attempt logs on their pack. Ids grow with time.
WITH page AS MATERIALIZED (
    SELECT p.id
      FROM jobs_logpack p
     WHERE p.id > %(after)s AND p.id < %(bound)s
     ORDER BY p.id
     LIMIT %(limit)s
), unused AS MATERIALIZED (
    SELECT p.id FROM page p WHERE NOT EXISTS (SELECT FROM jobs_attemptlog l WHERE l.pack_id = p.id)
), gone AS (
    DELETE FROM jobs_logpack p USING unused u WHERE p.id = u.id
)
SELECT p.id, u.id IS NOT NULL
  FROM page p
  LEFT JOIN unused u ON u.id = p.id
 ORDER BY p.id
