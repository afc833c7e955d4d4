-- On each day, for how long was each component led, vacant and unobserved?
--
-- One row for each cluster, component and UTC day. Time counts as led or vacant only while an observer was connected. All other time is
-- unobserved and never counts as up. Time after `known_until` is not counted yet, and a job counts from its first observation until it ended. A
-- condition on `day` reads only the files of those days.
--
-- * cluster_id, component: as in transitions
-- * day: The UTC day.
-- * led_seconds: Seconds with a published leader, summed over all jobs. A dead leader counts until the store detects its death
--   (`leader_changes` bounds that time).
-- * vacant_seconds: Seconds without a published leader, summed over all jobs. Drills count: nobody led in them either.
-- * unobserved_seconds: Seconds without a connected observer, or in which the entry could not be read, summed over all jobs.
-- * availability: The led part of the observed time, from 0 to 1. Null: there is none.
SELECT
  cluster_id,
  component,
  day,
  led / 1e6D AS led_seconds,
  vacant / 1e6D AS vacant_seconds,
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
