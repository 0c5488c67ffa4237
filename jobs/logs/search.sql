-- name: scan_segments
-- Indexes: log_segment_by_owner, log_segment_by_job or the primary key, backwards, `limit` segments.
-- Return the candidates, and always the last segment, which marks how far the scan went.
WITH scanned AS MATERIALIZED (
    SELECT s.*
      FROM jobs_logsegment s
     WHERE s.day BETWEEN %(first_day)s AND %(day)s
       AND (s.day, s.execution_id, s.attempt, s.first_sequence, s.part)
           <= (%(day)s::date, %(execution_id)s::uuid, %(attempt)s::int, %(first_sequence)s::int, %(part)s::int)
       AND (%(owner_id)s::int IS NULL OR s.owner_id = %(owner_id)s)
       AND (%(job_id)s::uuid IS NULL OR s.job_id = %(job_id)s)
     ORDER BY s.day DESC, s.execution_id DESC, s.attempt DESC, s.first_sequence DESC, s.part DESC
     LIMIT %(limit)s
), filtered AS MATERIALIZED (
    SELECT w.*, row_number() OVER (ORDER BY w.day DESC, w.execution_id DESC, w.attempt DESC, w.first_sequence DESC, w.part DESC) AS number,
           (%(stream)s::text IS NULL OR w.stream = %(stream)s)
           AND (%(since)s::timestamptz IS NULL OR w.logged_to >= %(since)s)
           AND (%(until)s::timestamptz IS NULL OR w.logged_from <= %(until)s)
           AND coalesce(w.folded, lower(w.text COLLATE "C")) LIKE %(needle)s
           AND coalesce(w.folded, lower(w.text COLLATE "C")) LIKE %(other_needle)s AS likely
      FROM scanned w
)
SELECT day, execution_id, attempt, first_sequence, part, stream, offsets, sequences, times, carried,
       CASE WHEN likely THEN text END, number
  FROM filtered
 WHERE likely OR number = (SELECT count(*) FROM scanned)
 ORDER BY number

-- name: search_segments
-- Index: log_segment_trigrams. The newest candidates of some days.
-- Materialised before sorting: otherwise the planner may walk a sorted index until it happens to find matches.
WITH found AS MATERIALIZED (
    SELECT s.*
      FROM jobs_logsegment s
     WHERE s.day BETWEEN %(first_day)s AND %(day)s
       AND (s.day, s.execution_id, s.attempt, s.first_sequence, s.part)
           <= (%(day)s::date, %(execution_id)s::uuid, %(attempt)s::int, %(first_sequence)s::int, %(part)s::int)
       AND (%(owner_id)s::int IS NULL OR s.owner_id = %(owner_id)s)
       AND (%(job_id)s::uuid IS NULL OR s.job_id = %(job_id)s)
       AND (%(stream)s::text IS NULL OR s.stream = %(stream)s)
       AND (%(since)s::timestamptz IS NULL OR s.logged_to >= %(since)s)
       AND (%(until)s::timestamptz IS NULL OR s.logged_from <= %(until)s)
       AND coalesce(s.folded, lower(s.text COLLATE "C")) LIKE %(needle)s
       AND coalesce(s.folded, lower(s.text COLLATE "C")) LIKE %(other_needle)s
)
SELECT day, execution_id, attempt, first_sequence, part, stream, offsets, sequences, times, carried, text,
       row_number() OVER (ORDER BY day DESC, execution_id DESC, attempt DESC, first_sequence DESC, part DESC)
  FROM found
 ORDER BY day DESC, execution_id DESC, attempt DESC, first_sequence DESC, part DESC
 LIMIT %(limit)s
