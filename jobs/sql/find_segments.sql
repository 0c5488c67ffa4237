-- log_search._ask_index. Index: log_segment_trigrams. Those of some days that may match, the newest of them.
-- Found before they are sorted: the planner must not walk a sorted index in the hope of meeting some.
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
