-- name: share_lock_artifacts
-- Index: primary key. Locks verified, unmarked artifacts against deletion until the transaction ends; transactions that
-- store versions of the same artifacts do not block each other.
SELECT id FROM jobs_artifact
 WHERE id = ANY(%(ids)s::uuid[]) AND verified_at IS NOT NULL AND doomed_at IS NULL AND deleted_at IS NULL
 ORDER BY id FOR KEY SHARE
