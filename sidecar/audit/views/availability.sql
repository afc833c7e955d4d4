---- availability
-- On each day, for how long was each component led, vacant and unobserved?
--
-- One row for each cluster, component and UTC day. Time counts as led or vacant only while an observer was connected. All other time is
-- unobserved and never counts as up. Time after `known_until` is not counted yet, and a job counts from its first observation until it ended.
--
-- * cluster_id, component: as in transitions
-- * day: The UTC day.
-- * led_seconds: Seconds with a published leader, summed over all jobs. A dead leader counts until the store detects its death
--   (`leader_changes` bounds that time).
-- * vacant_seconds: Seconds without a published leader, summed over all jobs. Drills count: nobody led in them either.
-- * unobserved_seconds: Seconds without a connected observer, or in which the entry could not be read, summed over all jobs.
-- * availability: The led part of the observed time, from 0 to 1. Null: there is none.
SELECT
  cluster_id, component, day, led / 1e6D AS led_seconds, vacant / 1e6D AS vacant_seconds,
  (counted - led - vacant) / 1e6D AS unobserved_seconds,
  led / nullif(led + vacant, 0) AS availability
FROM (
  SELECT
    cluster_id, component, event_date AS day, led, vacant, CASE WHEN event_date < last_day THEN lasted ELSE known END AS counted
  FROM (TABLE _closed_days UNION ALL TABLE _days)
  JOIN (
    SELECT cluster_id, date_from_unix_date(CAST((unix_micros(until) - 1) DIV 86400000000 AS INT)) AS last_day FROM known_until
  ) USING (cluster_id)
  WHERE event_date <= last_day
)
WHERE counted > 0

---- _cluster_parts
-- In which parts of the time was each cluster led, vacant, suspended and observed?
--
-- From its first coverage until its last one, without holes. Led: dispatcher, resource manager and REST server have a leader. Vacant: one of them
-- has none. Microseconds. No part is longer than a UTC day.
WITH stretches AS (
  SELECT cluster_id, began_at, ended_at, struct(1 AS seen, 0 AS suspended, 0 AS vacant, 0 AS held) AS adds FROM sight
  UNION ALL
  SELECT cluster_id, began_at, ended_at, struct(0, 1, 0, 0)
  FROM coverage
  WHERE suspended AND state = 'seeing' AND began_at < ended_at AND abs(unix_micros(observed_at) - unix_micros(ended_at)) <= 86400000000
  UNION ALL
  SELECT
    cluster_id, began_at, ended_at,
    struct(0, 0, CASE WHEN state = 'VACANT' THEN 1 ELSE 0 END, CASE WHEN state = 'HELD' THEN 1 ELSE 0 END)
  FROM leadership
  WHERE component <> 'job' AND state <> 'UNREADABLE'
),
-- Each stretch adds at its begin, and takes away at its end; what adds nothing begins a part: each day, and the whole time.
edges AS (
  SELECT cluster_id, edge.at, edge.sign, adds
  FROM (
    SELECT
      cluster_id, adds, greatest(unix_micros(began_at), unix_micros(since)) AS began,
      least(coalesce(unix_micros(ended_at), unix_micros(until)), unix_micros(until)) AS ended
    FROM stretches JOIN known_until USING (cluster_id)
  ) LATERAL VIEW explode(array(struct(began AS at, 1 AS sign), struct(ended AS at, -1 AS sign))) AS edge
  WHERE began < ended
  UNION ALL
  SELECT cluster_id, edge, 0, struct(0, 0, 0, 0)
  FROM known_until LATERAL VIEW explode(
    concat(
      array(unix_micros(since), unix_micros(until)),
      transform(
        sequence(unix_micros(since) DIV 86400000000 + 1, greatest((unix_micros(until) - 1) DIV 86400000000, unix_micros(since) DIV 86400000000 + 1)),
        day -> least(day * 86400000000, unix_micros(until))
      )
    )
  ) AS edge
),
moments AS (
  SELECT
    cluster_id, at,
    sum(sign * adds.seen) AS seen, sum(sign * adds.suspended) AS suspended, sum(sign * adds.vacant) AS vacant, sum(sign * adds.held) AS held
  FROM edges
  GROUP BY cluster_id, at
)
SELECT
  cluster_id, at AS began,
  lead(at, 1, at) OVER in_order AS ended,
  sum(seen) OVER in_order > 0 AS is_seen,
  sum(suspended) OVER in_order > 0 AS is_suspended,
  sum(vacant) OVER in_order > 0 AS is_vacant,
  sum(held) OVER in_order = 3 AS is_held
FROM moments
WINDOW in_order AS (PARTITION BY cluster_id ORDER BY at)

---- cluster_availability
-- On each day, for how long was each cluster led, vacant, suspended and unobserved?
--
-- One row for each cluster and UTC day. A cluster is led while dispatcher, resource manager and REST server have a leader and an observer is
-- connected, and vacant while one of them has none; jobs do not count. All other time is unobserved and never counts as up. The four add up to
-- the day, or to that part of it for which coverage is recorded. `cluster_months` has the same by month, `leadership_slo` the objective's window.
--
-- * cluster_id: as in transitions
-- * day: The UTC day.
-- * led_seconds: Seconds in which all three had a leader.
-- * vacant_seconds: Seconds in which one of them had none, also in a planned failover or a drill.
-- * suspended_seconds: The same while the FlinkDeployment was suspended or deleted: it is no downtime.
-- * unobserved_seconds: Seconds without a connected observer, or in which an entry could not be read and none was vacant.
-- * availability: The led part of the led and vacant time, from 0 to 1. Null: there is none.
SELECT
  cluster_id, day, led / 1e6D AS led_seconds, vacant / 1e6D AS vacant_seconds, suspended / 1e6D AS suspended_seconds,
  (elapsed - led - vacant - suspended) / 1e6D AS unobserved_seconds,
  led / nullif(led + vacant, 0) AS availability
FROM (
  SELECT
    cluster_id,
    date_from_unix_date(CAST(began DIV 86400000000 AS INT)) AS day,
    sum(CASE WHEN is_seen AND NOT is_vacant AND is_held THEN ended - began ELSE 0L END) AS led,
    sum(CASE WHEN is_seen AND is_vacant AND NOT is_suspended THEN ended - began ELSE 0L END) AS vacant,
    sum(CASE WHEN is_seen AND is_vacant AND is_suspended THEN ended - began ELSE 0L END) AS suspended,
    sum(ended - began) AS elapsed
  FROM _cluster_parts
  WHERE began < ended
  GROUP BY cluster_id, day
)

---- cluster_months
-- In each month, for how long was each cluster led, vacant, suspended and unobserved?
--
-- One row for each cluster and UTC month.
--
-- * month: The first day of the UTC month.
-- * cluster_id: as in transitions
-- * led_seconds, vacant_seconds, suspended_seconds, unobserved_seconds, availability: as in cluster_availability
SELECT
  trunc(day, 'MONTH') AS month,
  cluster_id, sum(led_seconds) AS led_seconds, sum(vacant_seconds) AS vacant_seconds, sum(suspended_seconds) AS suspended_seconds,
  sum(unobserved_seconds) AS unobserved_seconds,
  sum(led_seconds) / nullif(sum(led_seconds) + sum(vacant_seconds), 0) AS availability
FROM cluster_availability
GROUP BY month, cluster_id

---- leadership_slo
-- How much of the error budget of leadership is left, and how much of the time was unobserved?
--
-- One row for each cluster: the window of its objective that ends with the last coverage record. Led, vacant, suspended and unobserved add up
-- to the time from `since` to `until`. They mean the same as in `cluster_availability`. The sidecar's own figures (docs/how-to/slo.md) are those
-- of one observer.
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
    cluster_id, slo.slo_leadership AS objective,
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
  cluster_id, objective,
  timestamp_micros(greatest(since, until - window)) AS since,
  timestamp_micros(until) AS until,
  led / 1e6D AS led_seconds, vacant / 1e6D AS vacant_seconds, suspended / 1e6D AS suspended_seconds,
  unobserved / 1e6D AS unobserved_seconds, window / 1e6D AS window_seconds, budget / 1e6D AS budget_seconds,
  1 - vacant / nullif(budget, 0) AS remaining
FROM budgets

---- weekly_report
-- What are the figures of each week, for each cluster?
--
-- One failed JobManager is one failover, and one change of leader for each component. A failover counts in the week in which it was recorded,
-- right after it was over, an alert in the week of its outcome. Failovers of drills are counted in `drills` alone; their time is part of
-- `availability`.
--
-- * week: The Monday of the week, in UTC.
-- * cluster_id: as in transitions
-- * failovers: How many there were: the rows of `failovers` without `drill`.
-- * drills: How many failovers of drills there were besides.
-- * leader_changes: How many changes of leader there were, of all components and jobs: the rows of `leader_changes` without `drill`. The
--   figures of seconds are over these.
-- * mean_vacant_seconds: Mean time without a published leader, in seconds. Null: none is known, here and below.
-- * max_vacant_seconds: Maximum of the same.
-- * without_downtime, downtime_mean_seconds_at_least, downtime_mean_seconds_at_most, downtime_max_seconds_at_least, downtime_max_seconds_at_most:
--   as in mttr
-- * availability: The led part of the observed time of all components and jobs, from 0 to 1. Null: there is none.
-- * unobserved: The unobserved part of all time, from 0 to 1. Null: no coverage is recorded.
-- * alerts_delivered: Notifications that were delivered.
-- * alerts_given_up: Notifications that were given up.
-- * unreviewed: Failovers that nobody has annotated: the rows of `unreviewed`.
WITH figures AS (
  SELECT
    cluster_id, trunc(day, 'WEEK') AS week, led_seconds, vacant_seconds, unobserved_seconds,
    CAST(NULL AS STRUCT<vacant: DOUBLE, down_at_least: DOUBLE, down_at_most: DOUBLE>) AS change, 0L AS failovers, 0L AS delivered,
    0L AS gave_up, 0L AS unreviewed, 0L AS drills
  FROM availability
  UNION ALL
  SELECT
    cluster_id, trunc(event_date, 'WEEK'), 0D, 0D, 0D,
    struct(vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most), 0L, 0L, 0L, 0L, 0L
  FROM leader_changes
  WHERE NOT drill
  UNION ALL
  SELECT
    cluster_id, trunc(event_date, 'WEEK'), 0D, 0D, 0D, NULL, CASE WHEN drill THEN 0L ELSE 1L END, 0L, 0L,
    CASE WHEN drill OR noted IS NOT NULL THEN 0L ELSE 1L END, CASE WHEN drill THEN 1L ELSE 0L END
  FROM failovers
  LEFT JOIN (SELECT episode_id AS noted FROM annotations GROUP BY episode_id) ON noted = episode_id
  UNION ALL
  SELECT
    cluster_id, trunc(event_date, 'WEEK'), 0D, 0D, 0D, NULL, 0L,
    CASE WHEN outcome = 'delivered' THEN 1L ELSE 0L END, CASE WHEN outcome = 'gave_up' THEN 1L ELSE 0L END, 0L, 0L
  FROM alert_deliveries
  WHERE event_date IS NOT NULL
)
SELECT
  week, cluster_id, sum(failovers) AS failovers, sum(drills) AS drills,
  count(change) AS leader_changes,
  avg(change.vacant) AS mean_vacant_seconds,
  max(change.vacant) AS max_vacant_seconds,
  count_if(change IS NOT NULL AND change.down_at_most IS NULL) AS without_downtime,
  avg(change.down_at_least) AS downtime_mean_seconds_at_least,
  avg(change.down_at_most) AS downtime_mean_seconds_at_most,
  max(change.down_at_least) AS downtime_max_seconds_at_least,
  max(change.down_at_most) AS downtime_max_seconds_at_most,
  sum(led_seconds) / nullif(sum(led_seconds) + sum(vacant_seconds), 0) AS availability,
  sum(unobserved_seconds) / nullif(sum(led_seconds) + sum(vacant_seconds) + sum(unobserved_seconds), 0) AS unobserved,
  sum(delivered) AS alerts_delivered, sum(gave_up) AS alerts_given_up, sum(unreviewed) AS unreviewed
FROM figures
GROUP BY week, cluster_id
