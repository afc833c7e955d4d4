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
  SELECT cluster_id, max_by(struct(slo_leadership, slo_window_seconds), struct(observed_at, `to`, id)) AS slo FROM coverage GROUP BY cluster_id
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
stretches AS (
  SELECT cluster_id, began_at, ended_at, struct(1 AS seen, 0 AS suspended, 0 AS vacant, 0 AS held) AS adds FROM sight
  UNION ALL
  SELECT cluster_id, `from`, `to`, struct(0, 1, 0, 0)
  FROM coverage
  WHERE suspended AND state = 'seeing' AND `from` < `to` AND abs(unix_micros(observed_at) - unix_micros(`to`)) <= 86400000000
  UNION ALL
  SELECT
    cluster_id, began_at, ended_at,
    struct(0, 0, CASE WHEN state = 'VACANT' THEN 1 ELSE 0 END, CASE WHEN state = 'HELD' THEN 1 ELSE 0 END)
  FROM leadership
  WHERE component <> 'job' AND state <> 'UNREADABLE'
),
within AS (
  SELECT
    cluster_id, adds,
    greatest(unix_micros(began_at), since, until - window) AS began,
    least(coalesce(unix_micros(ended_at), until), until) AS ended
  FROM stretches JOIN windows USING (cluster_id)
),
-- Each stretch adds at its begin, and takes away at its end; so does one that adds nothing, which is the whole window.
edges AS (
  SELECT cluster_id, edge.at, edge.sign, adds
  FROM (
    SELECT cluster_id, began, ended, adds FROM within WHERE began < ended
    UNION ALL
    SELECT cluster_id, greatest(since, until - window), until, struct(0, 0, 0, 0) FROM windows
  ) LATERAL VIEW explode(array(struct(began AS at, 1 AS sign), struct(ended AS at, -1 AS sign))) AS edge
),
moments AS (
  SELECT
    cluster_id, at,
    sum(sign * adds.seen) AS seen, sum(sign * adds.suspended) AS suspended, sum(sign * adds.vacant) AS vacant, sum(sign * adds.held) AS held
  FROM edges
  GROUP BY cluster_id, at
),
parts AS (
  SELECT
    cluster_id,
    (lead(at, 1, at) OVER in_order) - at AS lasted,
    sum(seen) OVER in_order > 0 AS is_seen,
    sum(suspended) OVER in_order > 0 AS is_suspended,
    sum(vacant) OVER in_order > 0 AS is_vacant,
    sum(held) OVER in_order = 3 AS is_held
  FROM moments
  WINDOW in_order AS (PARTITION BY cluster_id ORDER BY at)
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
