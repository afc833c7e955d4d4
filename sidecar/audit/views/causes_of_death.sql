-- Of what do JobManagers die, how often, and for how long is then no leader working?
--
-- One row for each month and reason, over all failovers but those of drills, and those in which only the observer was blind. Of several
-- observers, the one that is most confident. What nobody knows is no reason: `unknown` and `not_observed` have rows of their own, and no
-- share. The `downtime_…` figures are those of the lower and of the upper bounds of the time without a working leader, over the failovers
-- where the bound is known. A failover counts in the month in which it was recorded, right after it was over. A condition on `month` reads
-- only the failovers of those months.
--
-- * month: The first day of the UTC month.
-- * reason: As in `deaths`. `unknown`: the observed facts do not decide. `not_observed`: no observer recorded that a process ended. After an outage
--   of the store it may still live.
-- * failovers: How many there were.
-- * clusters: In how many clusters.
-- * share: The part of the failovers whose reason is known, from 0 to 1. Null: `unknown` and `not_observed`.
-- * last_at: When the last one began.
-- * downtime_p50_seconds_at_least: Median of the lower bounds, in seconds. Null: none is known.
-- * downtime_p50_seconds_at_most: Median of the upper bounds. Null: none is known.
SELECT
  month,
  reason,
  count(*) AS failovers,
  count(DISTINCT cluster_id) AS clusters,
  CASE WHEN is_known THEN count(*) / sum(count(*)) OVER (PARTITION BY month, is_known) END AS share,
  max(opened_at) AS last_at,
  approx_percentile(downtime_seconds_at_least, 0.5, 10000) AS downtime_p50_seconds_at_least,
  approx_percentile(downtime_seconds_at_most, 0.5, 10000) AS downtime_p50_seconds_at_most
FROM (
  SELECT
    trunc(event_date, 'MONTH') AS month, coalesce(death_reason, 'not_observed') AS reason, coalesce(death_reason <> 'unknown', false) AS is_known,
    cluster_id, opened_at, downtime_seconds_at_least, downtime_seconds_at_most
  FROM failovers
  WHERE NOT drill AND cause <> 'observer_blind'
)
GROUP BY month, reason, is_known
