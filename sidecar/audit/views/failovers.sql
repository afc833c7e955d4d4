---- _best_deaths
-- Why did the leader's process end, for each failover: by the observer that knows most?
--
-- A reason of high confidence before one of medium confidence, before none; then the first one.
SELECT episode_id, death.reason, death.confidence, death.ended_at
FROM (
  SELECT
    episode_id,
    min_by(
      struct(reason, confidence, ended_at),
      struct(CASE confidence WHEN 'high' THEN 1 WHEN 'medium' THEN 2 ELSE 3 END, observed_at, observer, id)
    ) AS death
  FROM deaths
  GROUP BY episode_id
)

---- _best_recoveries
-- What came back, of each failover and of each of its jobs: by the observer with the worst proven verdict?
--
-- Each row has the verdict of its failover. Of equal ones, one whose outcome is proven and whose restoration is known, then the first one. The row
-- of the cluster has no job.
SELECT episode_id, job_id, recovery.*
FROM (
  SELECT
    episode_id, job_id,
    min_by(
      struct(
        cluster_id, verdict, name, restored_from, checkpoint_id, checkpoints_behind, reprocessed_seconds, dead_at, opened_at, led_at,
        dispatcher_led_at, running_at, checkpointed_at
      ),
      struct(
        CASE verdict WHEN 'lost' THEN 1 WHEN 'degraded' THEN 2 WHEN 'recovered' THEN 3 WHEN 'unproven' THEN 4 ELSE 5 END,
        coalesce(outcome = 'unproven', false), restored_from IS NULL, observed_at, observer, id
      )
    ) AS recovery
  FROM recoveries
  GROUP BY episode_id, job_id
)

---- _drilled
-- Which failovers were those of drills?
--
-- By the record of the drill's end, of any observer. A failover that is not known to be the drill's is not in it.
SELECT episode_id FROM drills WHERE phase = 'ended' AND episode_id IS NOT NULL GROUP BY episode_id

---- failovers
-- Which failovers were there, why, who took over from whom, and for how long was no leader working?
--
-- One row for each, however many components and jobs failed over; `leader_changes` has one for each of these. It is recorded when it is over:
-- until then it is only there. Episodes without a change of leader (`observer_blind`, `rewritten_by_flink`) are in `episodes`.
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

---- recovery_time
-- How long did each failover take until its jobs worked again, and where did the time go?
--
-- One row for each failover. Its beginning is the earlier one of `dead_at` and `opened_at`. Without `dead_at`, that is when the loss was observed:
-- the time before is in no figure. The clocks are those of the observer and of the machine of the JobManager. Of several observers, the one
-- that knows most: what is proven before what is not, then the first one.
--
-- * episode_id: as in failovers
-- * cluster_id, opened_at, cause: as in episodes
-- * death_reason, recovery_verdict: as in failovers
-- * dead_at: When the previous leader's process ended. Null: not known.
-- * opened_after_seconds: Seconds from the beginning until it was observed that a component had lost its leader. Null: `dead_at` is not known.
-- * dispatcher_led_after_seconds: Seconds from the beginning until the dispatcher had a leader again. Null: not known.
-- * led_after_seconds: The same, until all components of the cluster had one. Null: not while it was assessed.
-- * running_after_seconds: The same, until all tasks of all jobs were seen running. Null: not while it was assessed.
-- * checkpointed_after_seconds: The same, until each job had completed a checkpoint. Null: not while it was assessed.
-- * total_seconds: The last one of these times. Null: the jobs were not all seen running.
-- * event_date: The UTC date of the episode's record.
-- * drill: as in failovers
SELECT
  episode_id, cluster_id, opened_at, cause, death_reason, recovery_verdict, dead_at,
  (unix_micros(CASE WHEN dead_at IS NOT NULL THEN opened_at END) - began) / 1e6D AS opened_after_seconds,
  (unix_micros(dispatcher_led_at) - began) / 1e6D AS dispatcher_led_after_seconds,
  (unix_micros(led_at) - began) / 1e6D AS led_after_seconds,
  (unix_micros(running_at) - began) / 1e6D AS running_after_seconds,
  (unix_micros(checkpointed_at) - began) / 1e6D AS checkpointed_after_seconds,
  (unix_micros(CASE WHEN running_at IS NOT NULL THEN greatest(led_at, running_at, checkpointed_at) END) - began) / 1e6D AS total_seconds,
  event_date, drill
FROM (
  SELECT
    episode_id, episodes.cluster_id, episodes.opened_at, cause, reason AS death_reason, verdict AS recovery_verdict,
    coalesce(dead_at, ended_at) AS dead_at, led_at, dispatcher_led_at, running_at, checkpointed_at,
    unix_micros(least(episodes.opened_at, dead_at, ended_at)) AS began, event_date,
    drilled IS NOT NULL AS drill
  FROM episodes
  LEFT JOIN _best_deaths USING (episode_id)
  LEFT JOIN (SELECT * FROM _best_recoveries WHERE job_id IS NULL) AS recovered USING (episode_id)
  LEFT JOIN (SELECT episode_id, true AS drilled FROM _drilled) USING (episode_id)
  WHERE failovers > 0
)

---- reprocessed
-- From what was each job restored after a failover, and how much work was done again?
--
-- One row for each job of each failover of which that is known, by the observer that knows most.
--
-- * episode_id, cluster_id, opened_at, job_id, name: as in recoveries
-- * restored_from: `latest` (the last completed checkpoint), `older`, `savepoint` or `nothing`: the job lost its state.
-- * checkpoint_id, checkpoints_behind, reprocessed_seconds: as in recoveries
SELECT
  episode_id, cluster_id, opened_at, job_id, name, restored_from, checkpoint_id, checkpoints_behind, reprocessed_seconds
FROM _best_recoveries
WHERE job_id IS NOT NULL AND restored_from IS NOT NULL

---- causes_of_death
-- Of what do JobManagers die, how often, and for how long is then no leader working?
--
-- One row for each month and reason, over all failovers but those of drills, and those in which only the observer was blind. Of several
-- observers, the one that is most confident. What nobody knows is no reason: `unknown` and `not_observed` have rows of their own, and no
-- share. The `downtime_…` figures are those of the lower and of the upper bounds of the time without a working leader, over the failovers
-- where the bound is known. A failover counts in the month in which it was recorded, right after it was over.
--
-- * month: The first day of the UTC month.
-- * reason: As in `deaths`. `unknown`: the observed facts do not decide. `not_observed`: no observer recorded that a process ended. After an outage
--   of the store it may still live.
-- * failovers: How many there were.
-- * clusters: In how many clusters.
-- * share: The part of the failovers whose reason is known, from 0 to 1. Null: `unknown` and `not_observed`.
-- * last_at: When the last one began.
-- * downtime_p50_seconds_at_least: Median of the lower bounds, in seconds. Null: none is known.
-- * downtime_p50_seconds_at_most: Median of the upper bounds. Null: none is known.
SELECT
  month, reason, count(*) AS failovers,
  count(DISTINCT cluster_id) AS clusters,
  CASE WHEN is_known THEN count(*) / sum(count(*)) OVER (PARTITION BY month, is_known) END AS share,
  max(opened_at) AS last_at,
  approx_percentile(downtime_seconds_at_least, 0.5, 10000) AS downtime_p50_seconds_at_least,
  approx_percentile(downtime_seconds_at_most, 0.5, 10000) AS downtime_p50_seconds_at_most
FROM (
  SELECT
    trunc(event_date, 'MONTH') AS month, coalesce(death_reason, 'not_observed') AS reason, coalesce(death_reason <> 'unknown', false) AS is_known,
    cluster_id, opened_at, downtime_seconds_at_least, downtime_seconds_at_most
  FROM failovers
  WHERE NOT drill AND cause <> 'observer_blind'
)
GROUP BY month, reason, is_known

---- unreviewed
-- Which failovers has nobody annotated yet?
--
-- One row for each but those of drills, newest first. `annotate` writes a note, which is a review (docs/explanation/episodes.md#notes).
--
-- * episode_id, cluster_id, opened_at, cause, confidence, death_reason, recovery_verdict: as in failovers
-- * vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, planned, event_date: as in failovers
SELECT
  episode_id, cluster_id, opened_at, cause, confidence, death_reason, recovery_verdict, vacant_seconds, downtime_seconds_at_least,
  downtime_seconds_at_most, planned, event_date
FROM failovers
LEFT ANTI JOIN annotations USING (episode_id)
WHERE NOT drill
ORDER BY opened_at DESC, episode_id

---- mttr
-- When a leader changed, for how long was no leader published, and for how long was none working?
--
-- One row for each month, cluster and component, over the changes of its leader, but those of drills. `p50_…` and `p95_…` are measured
-- durations. A dead leader stays published until the store detects its death: the `downtime_…` figures are those of the lower and of the
-- upper bounds of the time without a working leader, each over the changes where the bound is known.
--
-- * month: The first day of the UTC month.
-- * cluster_id, component: as in transitions
-- * leader_changes: How many there were.
-- * without_duration: Changes whose vacancy was not observed, or not from its beginning. They are in none of the next four figures.
-- * mean_seconds: Mean time without a published leader, in seconds. Null: none is known, here and below.
-- * p50_seconds: Median of the same.
-- * p95_seconds: 95th percentile of the same.
-- * max_seconds: Maximum of the same.
-- * without_downtime: Changes without a known upper bound of the time without a working leader.
-- * downtime_mean_seconds_at_least: Mean of the lower bounds, in seconds.
-- * downtime_mean_seconds_at_most: Mean of the upper bounds, in seconds.
-- * downtime_p50_seconds_at_least: Median of the lower bounds.
-- * downtime_p50_seconds_at_most: Median of the upper bounds.
-- * downtime_p95_seconds_at_least: 95th percentile of the lower bounds.
-- * downtime_p95_seconds_at_most: 95th percentile of the upper bounds.
-- * downtime_max_seconds_at_least: Maximum of the lower bounds.
-- * downtime_max_seconds_at_most: Maximum of the upper bounds.
SELECT
  trunc(event_date, 'MONTH') AS month,
  cluster_id, component, count(*) AS leader_changes,
  count_if(vacant_seconds IS NULL) AS without_duration,
  avg(vacant_seconds) AS mean_seconds,
  approx_percentile(vacant_seconds, 0.5, 10000) AS p50_seconds,
  approx_percentile(vacant_seconds, 0.95, 10000) AS p95_seconds,
  max(vacant_seconds) AS max_seconds,
  count_if(downtime_seconds_at_most IS NULL) AS without_downtime,
  avg(downtime_seconds_at_least) AS downtime_mean_seconds_at_least,
  avg(downtime_seconds_at_most) AS downtime_mean_seconds_at_most,
  approx_percentile(downtime_seconds_at_least, 0.5, 10000) AS downtime_p50_seconds_at_least,
  approx_percentile(downtime_seconds_at_most, 0.5, 10000) AS downtime_p50_seconds_at_most,
  approx_percentile(downtime_seconds_at_least, 0.95, 10000) AS downtime_p95_seconds_at_least,
  approx_percentile(downtime_seconds_at_most, 0.95, 10000) AS downtime_p95_seconds_at_most,
  max(downtime_seconds_at_least) AS downtime_max_seconds_at_least, max(downtime_seconds_at_most) AS downtime_max_seconds_at_most
FROM leader_changes
WHERE NOT drill
GROUP BY month, cluster_id, component
