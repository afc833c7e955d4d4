-- When a leader changed, for how long was no leader published, and for how long was none working?
--
-- One row for each month, cluster and component, over the changes of its leader, but those of drills. `p50_…` and `p95_…` are measured
-- durations. A dead leader stays published until the store detects its death: the `downtime_…` figures are those of the lower and of the
-- upper bounds of the time without a working leader, each over the changes where the bound is known. A condition on `month` reads only the
-- files of those months.
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
  cluster_id,
  component,
  count(*) AS leader_changes,
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
FROM leader_changes
WHERE NOT drill
GROUP BY month, cluster_id, component
