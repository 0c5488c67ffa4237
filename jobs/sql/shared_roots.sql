-- commands.submit_job. Key: dependency_edge_once. The jobs without upstreams of their own from which every one of the
-- given jobs descends: a dependent of jobs that share none would wait for a run that never reaches it.
WITH RECURSIVE above AS (
    SELECT id AS given, id FROM unnest(%(job_ids)s::uuid[]) AS given (id)
     UNION
    SELECT a.given, d.upstream_id FROM above a JOIN jobs_dependency d ON d.job_id = a.id
)
SELECT a.id FROM above a
 WHERE NOT EXISTS (SELECT FROM jobs_dependency d WHERE d.job_id = a.id)
 GROUP BY a.id
HAVING count(DISTINCT a.given) = cardinality(%(job_ids)s::uuid[])
