-- orphans._doom_page. By primary key, and the indexes on artifact_id of versions and their inputs. A page of artifacts, of which those that
-- nobody wants any more are marked; what somebody is just about to use is locked, or no longer old once the lock is ours.
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
