-- teams.find_teams. By the unique indexes of names and of memberships. The teams of these names that the owner is a member of; they
-- stay until the transaction ends, and whoever shares a job with the same team does not wait.
SELECT t.id, t.name
  FROM jobs_team t
 WHERE t.name = ANY(%(names)s)
   AND EXISTS (SELECT FROM jobs_membership m WHERE m.team_id = t.id AND m.user_id = %(owner_id)s)
 ORDER BY t.id FOR KEY SHARE OF t
