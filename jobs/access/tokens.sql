-- name: find_token
-- Indexes: unique index on digest, primary key of users.
SELECT statement_timestamp(), t.id, t.owner_id, t.name, t.digest, t.scope, t.pool, t.max_workers, t.secrets,
       t.password_mark, t.created_at, t.expires_at, t.revoked_at, t.last_used_at, u.id, u.password, u.last_login,
       u.is_superuser, u.username, u.first_name, u.last_name, u.email, u.is_staff, u.is_active, u.date_joined
  FROM jobs_apitoken t
  JOIN auth_user u ON u.id = t.owner_id
 WHERE t.digest = %(digest)s AND u.is_active

-- name: record_token_use
-- Index: primary key. Of concurrent requests one writes, and none waits.
UPDATE jobs_apitoken
   SET last_used_at = statement_timestamp()
 WHERE id = (SELECT id FROM jobs_apitoken
              WHERE id = %(id)s
                AND (last_used_at IS NULL
                     OR last_used_at < statement_timestamp() - make_interval(secs => %(seconds)s))
                FOR NO KEY UPDATE SKIP LOCKED)
