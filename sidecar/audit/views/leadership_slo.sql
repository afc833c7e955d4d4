-- How much of the error budget of leadership is left, and how much of the time was unobserved?
--
-- One row for each cluster: the window of its objective that ends with the last coverage record. Led, vacant, suspended and unobserved add up
-- to the time from `since` to `until`. A cluster is led while dispatcher, resource manager and REST server have a leader and an observer is
-- connected, and vacant while one of them has none; jobs do not count. The sidecar's own figures (docs/how-to/slo.md) are the same, but of one
-- observer. Observers are merged, as in `availability`.
--
-- * cluster_id: as in transitions
-- * objective: The objective that was recorded last, in percent. Null: none is configured.
-- * since: When the window began, or the coverage.
-- * until: When the last recorded coverage ended.
-- * led_seconds: Seconds in which all three had a leader.
-- * vacant_seconds: Seconds in which one of them had none, also in a planned failover or a drill.
-- * suspended_seconds: The same while the FlinkDeployment was suspended or deleted. It spends no budget.
-- * unobserved_seconds: Seconds without a connected observer, or in which an entry could not be read and none was vacant. They earn no budget.
-- * window_seconds: The window of the objective. 30 days without one.
-- * budget_seconds: Vacant seconds that the objective allows in the window without its unobserved and suspended parts. Null: no objective.
-- * remaining: The part of the budget that is left, below 0 if it is overspent. Null: no objective, or no budget.
WITH objectives AS (
  SELECT cluster_id, max_by(struct(slo_leadership, slo_window_seconds), struct(observed_at, ended_at, id)) AS slo FROM coverage GROUP BY cluster_id
),
windows AS (
  SELECT
    cluster_id,
    slo.slo_leadership AS objective,
    coalesce(CAST(slo.slo_window_seconds * 1e6D AS BIGINT), 30 * 86400000000) AS window,
    unix_micros(since) AS since,
    unix_micros(until) AS until
  FROM known_until LEFT JOIN objectives USING (cluster_id)
),
parts AS (
  SELECT
    cluster_id, least(ended, until) - greatest(began, until - window) AS lasted, is_seen, is_suspended, is_vacant, is_held
  FROM _cluster_parts JOIN windows USING (cluster_id)
  WHERE ended > until - window
),
sums AS (
  SELECT
    cluster_id,
    sum(CASE WHEN is_seen AND NOT is_vacant AND is_held THEN lasted ELSE 0L END) AS led,
    sum(CASE WHEN is_seen AND is_vacant AND NOT is_suspended THEN lasted ELSE 0L END) AS vacant,
    sum(CASE WHEN is_seen AND is_vacant AND is_suspended THEN lasted ELSE 0L END) AS suspended,
    sum(lasted) AS elapsed
  FROM parts
  GROUP BY cluster_id
),
budgets AS (
  SELECT *, elapsed - led - vacant - suspended AS unobserved, (window - (elapsed - led - vacant)) * (100 - objective) / 100 AS budget
  FROM sums JOIN windows USING (cluster_id)
)
SELECT
  cluster_id,
  objective,
  timestamp_micros(greatest(since, until - window)) AS since,
  timestamp_micros(until) AS until,
  led / 1e6D AS led_seconds,
  vacant / 1e6D AS vacant_seconds,
  suspended / 1e6D AS suspended_seconds,
  unobserved / 1e6D AS unobserved_seconds,
  window / 1e6D AS window_seconds,
  budget / 1e6D AS budget_seconds,
  1 - vacant / nullif(budget, 0) AS remaining
FROM budgets
