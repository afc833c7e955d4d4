-- How long did each failover take until its jobs worked again, and where did the time go?
--
-- One row for each failover. Its beginning is the earlier one of `dead_at` and `opened_at`. Without `dead_at`, that is when the loss was observed:
-- the time before is in no figure. The clocks are those of the observer and of the machine of the JobManager. Of several observers, the one
-- that knows most: what is proven before what is not, then the first one. A condition on `event_date` reads only the failovers of those dates.
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
