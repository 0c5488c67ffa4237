-- name: find_teams
-- Indexes: unique indexes of team names and memberships. Locks the teams against deletion until the transaction ends;
-- transactions that share jobs with the same team do not block each other.
SELECT t.id, t.name
  FROM jobs_team t
 WHERE t.name = ANY(%(names)s)
   AND EXISTS (SELECT FROM jobs_membership m WHERE m.team_id = t.id AND m.user_id = %(owner_id)s)
 ORDER BY t.id FOR KEY SHARE OF t
