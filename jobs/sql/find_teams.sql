-- jobs.services.teams: the teams of these names that the owner is a member of, which stay until the end of the transaction;
-- those who share jobs with one team do not wait for each other. By the unique indexes of names and of memberships.
SELECT t.id, t.name
  FROM jobs_team t
 WHERE t.name = ANY(%(names)s)
   AND EXISTS (SELECT FROM jobs_membership m WHERE m.team_id = t.id AND m.user_id = %(owner_id)s)
 ORDER BY t.id FOR KEY SHARE OF t
