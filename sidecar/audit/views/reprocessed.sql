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
