-- When a leader was lost to another one, for how long did nobody lead?
--
-- One row for each cluster and component, over its failovers; seconds. Of some no vacancy was seen, or not its beginning: they are in
-- `without_duration`, and in no other figure. `p50_seconds` and `p95_seconds` are durations that were measured: half of them, and 95 of 100,
-- were not longer.
SELECT
  cluster_id,
  component,
  count(*) AS failovers,
  count_if(vacant_seconds IS NULL) AS without_duration,
  avg(vacant_seconds) AS mean_seconds,
  approx_percentile(vacant_seconds, 0.5, 10000) AS p50_seconds,
  approx_percentile(vacant_seconds, 0.95, 10000) AS p95_seconds,
  max(vacant_seconds) AS max_seconds
FROM failovers
GROUP BY cluster_id, component
