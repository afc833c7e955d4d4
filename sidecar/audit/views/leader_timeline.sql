-- Which leader did each component (of a job: `job_id`) have, from when to when, and how did its term end?
--
-- One row for each term. A leader that was only unobserved has one term. A condition on `event_date` reads only the files of those dates.
--
-- * cluster_id, component, job_id: as in transitions
-- * began_at: When the leader was first observed.
-- * ended_at: When it was first observed that it no longer led. Null: the term is not over, as far as the log knows.
-- * seconds: From `began_at` to `ended_at`. Null if that is null.
-- * address: The leader's address.
-- * host: The host in `address`. Null: there is none in it.
-- * session_id: The leader session id.
-- * how_it_began: `GRANTED` after a vacancy, `CHANGED` without one, `DISCOVERED` if it led already when an observer connected.
-- * how_it_ended: `REVOKED`, vacant afterwards. `CHANGED`, another leader followed. `RETIRED`, its job ended. `DISCOVERED`, it ended unobserved
--   before `ended_at`. Null: the term is not over.
-- * before_address, before_session_id: as in leadership
-- * returned, split: as in transitions
-- * event_date: as in leadership
SELECT
  cluster_id,
  component,
  job_id,
  began_at,
  ended_at,
  (unix_micros(ended_at) - unix_micros(began_at)) / 1e6D AS seconds,
  address,
  :host(address) AS host,
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
