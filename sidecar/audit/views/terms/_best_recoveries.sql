-- What came back, of each failover and of each of its jobs: by the observer that knows most?
--
-- What is proven before what is `unproven`; of a job, one whose restoration is known before others; then the first one. The row of the cluster has
-- no job.
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
      struct(coalesce(outcome, verdict) = 'unproven', restored_from IS NULL, observed_at, observer, id)
    ) AS recovery
  FROM recoveries
  GROUP BY episode_id, job_id
)
