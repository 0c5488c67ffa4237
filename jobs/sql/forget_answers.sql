-- repeating.forget_answers. A batch of answers that are over; one that is just being replaced is left to its request.
-- Index: stored_answer_over.
WITH over AS MATERIALIZED (
    SELECT id
      FROM jobs_storedanswer
     WHERE expires_at <= statement_timestamp()
     ORDER BY expires_at
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED)
DELETE FROM jobs_storedanswer a
 USING over
 WHERE a.id = over.id
