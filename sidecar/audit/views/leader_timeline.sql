-- Which leader did each component (of a job: `job_id`) have, from when to when, and how did its term end?
--
-- One row for each term. `how_it_began`: GRANTED after a vacancy, CHANGED without one, DISCOVERED if it led already when an observer connected.
-- `how_it_ended`: REVOKED, vacant afterwards; CHANGED, another leader followed; RETIRED, its job ended; DISCOVERED, it ended unobserved before
-- `ended_at`. Null: the term is not over, as far as the log knows. A leader that was only unobserved has one term. `returned`: it had been
-- replaced before, and is back with its old session id, without an election. `event_date`: the UTC date of `ended_at`, null if that is null.
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
  split,
  event_date
FROM leadership
WHERE state = 'HELD'
