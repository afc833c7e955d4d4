-- Which leader took over from which, when, and for how long was no leader published, and none working?
--
-- One row for each leadership term that follows another leader's: the new leader of a component (of a job: `job_id`) differs from the last one
-- known to the log or to the observer. Not a failover: the first election of a new cluster, a leader that was only unobserved, a leader that
-- returned with its old session id. An unobserved change is one: its `kind` is DISCOVERED, and it happened before `at`. `vacant_seconds`, the time
-- without a published leader, is null if no vacancy was observed, or not its beginning. A dead leader stays published until the store detects its
-- death: `downtime_seconds_at_least` and `downtime_seconds_at_most` bound the time without a working leader, null if unknown. One failed JobManager
-- is one row for each component, with one `episode_id`; `cause` is that of the episode, null while it is open, for a job that failed over by
-- itself, and if no episode was recorded.
SELECT
  term.cluster_id,
  component,
  job_id,
  at,
  term.before_address,
  term.after_address,
  term.before_session_id,
  term.after_session_id,
  term.vacant_seconds,
  term.downtime_seconds_at_least,
  term.downtime_seconds_at_most,
  kind,
  episode_id,
  cause
FROM (
  SELECT
    *,
    began_at AS at,
    address AS after_address,
    session_id AS after_session_id,
    how_it_began AS kind,
    -- A leader session id is one term.
    row_number() OVER (
      PARTITION BY cluster_id, component, job_id, session_id ORDER BY how_it_began = 'DISCOVERED', began_at
    ) AS nth
  FROM leadership
  WHERE state = 'HELD'
) AS term
LEFT JOIN episodes ON episode_id = episodes.id
WHERE nth = 1 AND NOT returned AND term.before_session_id <> term.after_session_id
