-- Which leader of which component took over from which, when, and for how long was no leader published, and none working?
--
-- One row for each leadership term that follows another leader's: the new leader of a component (of a job: `job_id`) differs from the last
-- one known to the log or to the observer. Not one: the first election of a new cluster, a leader that was only unobserved, a leader that
-- returned with its old session id. A dead leader stays published until the store detects its death, so the time without a working leader has
-- bounds. One failed JobManager is one row for each component, with one `episode_id`: `failovers` has one row for it. A condition on
-- `event_date` reads only the files of those dates, and for `cause`, `death_reason`, `recovery_verdict` and `drill` all of `episodes`,
-- `deaths`, `recoveries` and `drills`: these are recorded when they are known, whenever that is.
--
-- * cluster_id, component, job_id: as in transitions
-- * changed_at: When the new leader was first observed.
-- * before_address: The previous leader's address. Null: not known.
-- * after_address: The new leader's address.
-- * before_host: The host in `before_address`. Null: not known.
-- * after_host: The host in `after_address`. Null: not known.
-- * before_session_id: The previous leader session id.
-- * after_session_id: The new leader session id.
-- * vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most: as in transitions
-- * kind: `GRANTED` after a vacancy, `CHANGED` without one, `DISCOVERED` if it was unobserved: then it happened before `changed_at`.
-- * episode_id: as in transitions
-- * cause: The cause of the episode. Null: it is not over, the job failed over by itself, or no episode was recorded.
-- * event_date: The UTC date of `changed_at`.
-- * death_reason: Why the process of the previous leader ended (`deaths.reason`). Null: no observer recorded that it ended.
-- * recovery_verdict: Whether everything came back (`recoveries.verdict`). `unproven` and null (no observer assessed it) are not good.
-- * drill: Whether it was that of a drill, which no view counts. False while the drill is not over.
SELECT
  cluster_id,
  component,
  job_id,
  changed_at,
  before_address,
  after_address,
  :host(before_address) AS before_host,
  :host(after_address) AS after_host,
  before_session_id,
  after_session_id,
  vacant_seconds,
  downtime_seconds_at_least,
  downtime_seconds_at_most,
  kind,
  episode_id,
  cause,
  event_date,
  death_reason,
  recovery_verdict,
  drilled IS NOT NULL AS drill
FROM (TABLE _closed_leader_changes UNION ALL TABLE _leader_changes)
-- Grouped, so that Spark leaves out a join if nobody asks for its column.
LEFT JOIN (SELECT episode_id, min(cause) AS cause FROM episodes GROUP BY episode_id) USING (episode_id)
LEFT JOIN (SELECT episode_id, reason AS death_reason FROM _best_deaths) USING (episode_id)
LEFT JOIN (
  SELECT episode_id, min(verdict) AS recovery_verdict FROM _best_recoveries WHERE job_id IS NULL GROUP BY episode_id
) USING (episode_id)
LEFT JOIN (SELECT episode_id, true AS drilled FROM _drilled) USING (episode_id)
