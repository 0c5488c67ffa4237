-- name: find_recent_artifacts
-- Index: artifact_once_per_owner. The owner's artifacts with these hashes that are stored and need no new wanted_at.
SELECT id, owner_id, sha256, size, created_at, wanted_at, doomed_at, verified_at, deleted_at
  FROM jobs_artifact
 WHERE owner_id = %(owner_id)s AND sha256 = ANY(%(hashes)s)
   AND verified_at IS NOT NULL AND doomed_at IS NULL AND deleted_at IS NULL
   AND wanted_at > statement_timestamp() - make_interval(secs => %(seconds)s)

-- name: share_lock_artifacts
-- Index: primary key. Locks verified, unmarked artifacts against deletion until the transaction ends; transactions that
-- store versions of the same artifacts do not block each other.
SELECT id FROM jobs_artifact
 WHERE id = ANY(%(ids)s::uuid[]) AND verified_at IS NOT NULL AND doomed_at IS NULL AND deleted_at IS NULL
 ORDER BY id FOR KEY SHARE
