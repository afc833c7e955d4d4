-- What came back, of each failover and of each of its jobs: by the observer with the worst proven verdict?
--
-- Each row has the verdict of its failover. Of equal ones, one whose outcome is proven and whose restoration is known, then the first one. The row
-- of the cluster has no job.
SELECT episode_id, job_id, recovery.*
FROM (
  SELECT
    episode_id,
    job_id,
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
