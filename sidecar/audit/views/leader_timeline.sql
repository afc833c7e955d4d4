-- Who led each component (of a job: `job_id`), from when to when, and how did it end?
--
-- One row for each term. `how_it_began`: GRANTED after a vacancy, CHANGED without one, DISCOVERED when it led already when somebody looked.
-- `how_it_ended`: REVOKED, nobody led then; CHANGED, another leader took its place; RETIRED, its job ended; DISCOVERED, it was over when
-- somebody could look again, at some time before `ended_at`. Null: it leads, as far as the log knows. A leader that was only out of sight has
-- one term. `returned`: it had been replaced before, and is back with its old session id; no election was held.
SELECT
  cluster_id,
  component,
  job_id,
  began_at,
  ended_at,
  (unix_micros(ended_at) - unix_micros(began_at)) / 1e6D AS seconds,
  address,
  session_id,
  how_it_began,
  how_it_ended,
  before_address,
  before_session_id,
  returned,
  split
FROM leadership
WHERE state = 'HELD'
