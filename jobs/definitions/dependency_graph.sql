-- name: read_connected_edges
-- Key: dependency_edge_once, and the index on jobs_dependency.upstream_id. All edges above the jobs and above their
-- descendants, which an edit affects too; and whether each job has a schedule, which starts runs of its own.
WITH RECURSIVE below AS (
    SELECT unnest(%(job_ids)s::uuid[]) AS id
     UNION
    SELECT d.job_id FROM below b JOIN jobs_dependency d ON d.upstream_id = b.id
), around AS (
    SELECT id FROM below
     UNION
    SELECT d.upstream_id FROM around a JOIN jobs_dependency d ON d.job_id = a.id
)
SELECT d.job_id, d.upstream_id,
       EXISTS (SELECT FROM jobs_schedule s WHERE s.job_id = d.job_id AND s.deleted_at IS NULL OFFSET 0)
  FROM around a JOIN jobs_dependency d ON d.job_id = a.id
