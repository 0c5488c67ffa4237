-- name: claim_idempotency_key
-- Claim the key unless a request with it is in progress. NOT EXISTS reads without a lock first, so that a request does
-- not wait for the transaction that is deleting the claim. Index: idempotency_claim_once.
INSERT INTO jobs_idempotencyclaim AS claim (id, owner_id, key, expires_at)
SELECT %(id)s, %(owner_id)s, %(key)s::text, clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE NOT EXISTS (
       SELECT
         FROM jobs_idempotencyclaim
        WHERE owner_id = %(owner_id)s AND key = %(key)s AND expires_at > clock_timestamp())
    ON CONFLICT (owner_id, key) DO UPDATE
   SET id = EXCLUDED.id, expires_at = EXCLUDED.expires_at
 WHERE claim.expires_at <= clock_timestamp()

-- name: delete_expired_answers
-- Delete a batch of expired responses, skipping those that a request is replacing. Index: stored_answer_over.
WITH expired AS MATERIALIZED (
    SELECT id
      FROM jobs_storedanswer
     WHERE expires_at <= statement_timestamp()
     ORDER BY expires_at
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED)
DELETE FROM jobs_storedanswer a
 USING expired
 WHERE a.id = expired.id
