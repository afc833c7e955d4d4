-- Which failovers has nobody annotated yet?
--
-- One row for each but those of drills, newest first. `annotate` writes a note, which is a review (docs/explanation/episodes.md#notes). A condition on `event_date` reads only the
-- failovers of those dates.
--
-- * episode_id: as in recovery_time
-- * cluster_id, opened_at, cause, confidence: as in episodes
-- * death_reason, recovery_verdict: as in failovers
-- * vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, planned: as in episodes
-- * event_date: as in recovery_time
SELECT
  episodes.id AS episode_id, episodes.cluster_id, episodes.opened_at, cause, episodes.confidence, reason AS death_reason,
  verdict AS recovery_verdict, vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, planned, event_date
FROM episodes
LEFT JOIN _best_deaths ON _best_deaths.episode_id = episodes.id
LEFT JOIN _best_recoveries ON _best_recoveries.episode_id = episodes.id AND job_id IS NULL
LEFT ANTI JOIN annotations ON annotations.episode_id = episodes.id
LEFT ANTI JOIN _drilled ON _drilled.episode_id = episodes.id
WHERE failovers > 0
ORDER BY opened_at DESC, episode_id
