-- name: delete_unused_log_packs
-- Indexes: primary key, the attempt logs' index on pack_id. Ids grow with time.
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

-- name: doom_orphans
-- Indexes: primary key, the indexes on artifact_id of versions and their inputs. Mark the orphans of a page of artifacts.
-- An artifact that is just being used is locked (skipped), or its wanted_at is recent once this has the lock.
WITH page AS MATERIALIZED (
    SELECT a.id FROM jobs_artifact a WHERE a.id > %(after)s AND a.id < %(bound)s ORDER BY a.id LIMIT %(limit)s
), orphans AS MATERIALIZED (
    SELECT a.id
      FROM jobs_artifact a
      JOIN page p ON p.id = a.id
     WHERE a.doomed_at IS NULL
       AND a.wanted_at < statement_timestamp() - make_interval(secs => %(grace_seconds)s)
       AND NOT EXISTS (SELECT FROM jobs_jobversion v WHERE v.artifact_id = a.id)
       AND NOT EXISTS (SELECT FROM jobs_versioninput i WHERE i.artifact_id = a.id)
       FOR UPDATE OF a SKIP LOCKED
), doomed AS (
    UPDATE jobs_artifact a SET doomed_at = statement_timestamp() FROM orphans o WHERE a.id = o.id RETURNING a.id
)
SELECT p.id, d.id IS NOT NULL FROM page p LEFT JOIN doomed d ON d.id = p.id ORDER BY p.id
