-- Which failovers has nobody annotated yet?
--
-- One row for each but those of drills, newest first. `annotate` writes a note, which is a review (docs/explanation/episodes.md#notes). A
-- condition on `event_date` reads only the failovers of those dates.
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
