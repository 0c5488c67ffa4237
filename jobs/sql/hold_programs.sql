-- dependencies._create_missing. By primary keys, and the index on version_id of inputs. The artifacts that these executions
-- are to run and read, and whether each is being deleted; until the transaction ends nobody begins to. What a cancelled job
-- names may be gone: nothing of it becomes ready.
SELECT a.id, a.doomed_at IS NOT NULL OR a.deleted_at IS NOT NULL
  FROM jobs_artifact a
 WHERE a.id IN (
       SELECT unnest(v.artifact_id || ARRAY(SELECT i.artifact_id FROM jobs_versioninput i WHERE i.version_id = v.id))
         FROM jobs_execution e
         JOIN jobs_job j ON j.id = e.job_id
         JOIN jobs_jobversion v ON v.id = e.version_id
        WHERE e.id = ANY(%(ids)s::uuid[]) AND j.state <> 'cancelled')
 ORDER BY a.id FOR KEY SHARE OF a
