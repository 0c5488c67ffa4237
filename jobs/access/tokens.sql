-- name: record_token_use
-- Index: primary key. Of concurrent requests one writes, and none waits.
UPDATE jobs_apitoken
   SET last_used_at = statement_timestamp()
 WHERE id = (SELECT id FROM jobs_apitoken
              WHERE id = %(id)s
                AND (last_used_at IS NULL
                     OR last_used_at < statement_timestamp() - make_interval(secs => %(seconds)s))
                FOR NO KEY UPDATE SKIP LOCKED)
