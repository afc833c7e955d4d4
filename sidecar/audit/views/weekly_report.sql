-- What are the figures of each week, for each cluster?
--
-- One failed JobManager is one failover, and one change of leader for each component. A failover counts in the week in which it was recorded,
-- right after it was over, an alert in the week of its outcome. Failovers of drills are counted in `drills` alone; their time is part of
-- `availability`. A condition on `week` reads only the files of those weeks.
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
  week,
  cluster_id,
  sum(failovers) AS failovers,
  sum(drills) AS drills,
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
  sum(delivered) AS alerts_delivered,
  sum(gave_up) AS alerts_given_up,
  sum(unreviewed) AS unreviewed
FROM figures
GROUP BY week, cluster_id
