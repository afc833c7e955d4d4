-- How was each week, in one line for each cluster?
--
-- `week`: its Monday; weeks are UTC. `failovers` counts rows of that view: one JobManager that fails is one for each component.
-- `availability` is over all components and jobs, of the time that was seen; `unobserved` is the part of all time that nobody saw.
WITH figures AS (
  SELECT
    cluster_id, trunc(day, 'WEEK') AS week, led_seconds, vacant_seconds, unobserved_seconds,
    0L AS failovers, CAST(NULL AS DOUBLE) AS vacancy, 0L AS delivered, 0L AS gave_up
  FROM availability
  UNION ALL
  SELECT
    cluster_id, trunc(date_from_unix_date(CAST(unix_micros(at) DIV 86400000000 AS INT)), 'WEEK'), 0D, 0D, 0D, 1L, vacant_seconds, 0L, 0L
  FROM failovers
  UNION ALL
  SELECT
    cluster_id, trunc(date_from_unix_date(CAST(unix_micros(queued_at) DIV 86400000000 AS INT)), 'WEEK'), 0D, 0D, 0D, 0L, NULL,
    CASE WHEN outcome = 'delivered' THEN 1L ELSE 0L END, CASE WHEN outcome = 'gave_up' THEN 1L ELSE 0L END
  FROM alert_deliveries
)
SELECT
  week,
  cluster_id,
  sum(failovers) AS failovers,
  avg(vacancy) AS mean_vacant_seconds,
  max(vacancy) AS max_vacant_seconds,
  sum(led_seconds) / nullif(sum(led_seconds) + sum(vacant_seconds), 0) AS availability,
  sum(unobserved_seconds) / nullif(sum(led_seconds) + sum(vacant_seconds) + sum(unobserved_seconds), 0) AS unobserved,
  sum(delivered) AS alerts_delivered,
  sum(gave_up) AS alerts_given_up
FROM figures
GROUP BY week, cluster_id
