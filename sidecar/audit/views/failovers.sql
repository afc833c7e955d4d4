-- Which failovers were there, why, who took over from whom, and for how long was no leader working?
--
-- One row for each, however many components and jobs failed over; `leader_changes` has one for each of these. It is recorded when it is over:
-- until then it is only there. Episodes without a change of leader (`observer_blind`, `rewritten_by_flink`) are in `episodes`. A condition on
-- `event_date` reads only the failovers of those dates, and for `death_reason`, `recovery_verdict` and `drill` all of `deaths`, `recoveries` and
-- `drills`: these are recorded when they are known, whenever that is.
--
-- * episode_id: The failover.
-- * cluster_id, opened_at, closed_at, cause, confidence: as in episodes
-- * death_reason: Why the process of the previous leader ended (`deaths.reason`). Null: no observer recorded that it ended.
-- * recovery_verdict: Whether everything came back (`recoveries.verdict`). `unproven` and null (no observer assessed it) are not good.
-- * before_host: The host in `before_address`. Null: not known.
-- * after_host: The host in `after_address`. Null: not known, or none.
-- * before_address, after_address, before_pod, after_pod, components, jobs_affected, jobs_lost, vacant_seconds: as in episodes
-- * downtime_seconds_at_least, downtime_seconds_at_most, planned: as in episodes
-- * leaders: How many leaders followed each other: more than 1 if the next failover began before this one was over.
-- * drill: Whether it was that of a drill, which no view counts as a failover. False while the drill is not over.
-- * event_date: as in episodes
SELECT
  episode_id, cluster_id, opened_at, closed_at, cause, confidence, death_reason,
  recovery_verdict, :host(before_address) AS before_host, :host(after_address) AS after_host, before_address, after_address, before_pod,
  after_pod, components, jobs_affected, jobs_lost, vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, planned,
  failovers AS leaders, drilled IS NOT NULL AS drill, event_date
FROM episodes
LEFT JOIN (SELECT episode_id, reason AS death_reason FROM _best_deaths) USING (episode_id)
LEFT JOIN (
  SELECT episode_id, min(verdict) AS recovery_verdict FROM _best_recoveries WHERE job_id IS NULL GROUP BY episode_id
) USING (episode_id)
LEFT JOIN (SELECT episode_id, true AS drilled FROM _drilled) USING (episode_id)
WHERE failovers > 0
