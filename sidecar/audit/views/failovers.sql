-- Which leader took over from which, when, and for how long was no leader published, and none working?
--
-- One row for each leadership term that follows another leader's: the new leader of a component (of a job: `job_id`) differs from the last one
-- known to the log or to the observer. Not a failover: the first election of a new cluster, a leader that was only unobserved, a leader that
-- returned with its old session id. An unobserved change is one: its `kind` is DISCOVERED, and it happened before `at`. `vacant_seconds`, the time
-- without a published leader, is null if no vacancy was observed, or not its beginning. A dead leader stays published until the store detects its
-- death: `downtime_seconds_at_least` and `downtime_seconds_at_most` bound the time without a working leader, null if unknown. One failed JobManager
-- is one row for each component, with one `episode_id`; `cause` is that of the episode, null while it is open, for a job that failed over by
-- itself, and if no episode was recorded. `event_date`: the UTC date of `at`; a condition on it reads only the files of those dates.
SELECT
  failed_over.cluster_id,
  component,
  job_id,
  at,
  failed_over.before_address,
  failed_over.after_address,
  failed_over.before_session_id,
  failed_over.after_session_id,
  failed_over.vacant_seconds,
  failed_over.downtime_seconds_at_least,
  failed_over.downtime_seconds_at_most,
  kind,
  episode_id,
  cause,
  failed_over.event_date
FROM (TABLE _closed_failovers UNION ALL TABLE _failovers) AS failed_over
LEFT JOIN episodes ON episode_id = episodes.id
