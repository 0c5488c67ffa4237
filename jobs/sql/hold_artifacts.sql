-- artifacts.hold_artifacts. By primary key. Those of them whose bytes are stored and stay; until the transaction ends nobody
-- deletes them, and whoever stores a version of the same artifacts does not wait.
SELECT id FROM jobs_artifact
 WHERE id = ANY(%(ids)s::uuid[]) AND verified_at IS NOT NULL AND doomed_at IS NULL AND deleted_at IS NULL
 ORDER BY id FOR KEY SHARE
