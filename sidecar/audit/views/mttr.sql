-- When a leader was lost to another one, for how long was none published, and for how long did none work?
--
-- One row for each cluster and component, over its failovers; seconds. Of some no vacancy was seen, or not its beginning: they are in
-- `without_duration`, and in no other figure. `p50_seconds` and `p95_seconds` are durations that were measured: half of them, and 95 of 100,
-- were not longer. These are of the time without a published leader. A leader that dies stays published until the store finds out: the figures
-- `downtime_…` are the same of the time without a working leader, of its lower and its upper bounds, each over the failovers where it is known. The
-- truth lies between them; `without_downtime` is the number of failovers of which no upper bound is known.
SELECT
  cluster_id,
  component,
  count(*) AS failovers,
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
  max(downtime_seconds_at_least) AS downtime_max_seconds_at_least,
  max(downtime_seconds_at_most) AS downtime_max_seconds_at_most
FROM failovers
GROUP BY cluster_id, component
