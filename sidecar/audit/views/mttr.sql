-- In a failover, for how long was no leader published, and for how long was none working?
--
-- One row for each cluster and component, over its failovers; seconds. Failovers whose vacancy was not observed, or not from its beginning, are
-- counted in `without_duration`, and in no other figure of the time without a published leader. `p50_seconds` and `p95_seconds` are measured
-- durations. A dead leader stays published until the store detects its death: the `downtime_…` figures are the same figures of the lower and the
-- upper bounds of the time without a working leader, each over the failovers where it is known. `without_downtime` counts the failovers without
-- a known upper bound.
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
