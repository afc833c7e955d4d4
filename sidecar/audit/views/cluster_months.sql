-- In each month, for how long was each cluster led, vacant, suspended and unobserved?
--
-- One row for each cluster and UTC month. A cluster is led while dispatcher, resource manager and REST server are.
--
-- * month: The first day of the UTC month.
-- * cluster_id: as in transitions
-- * led_seconds, vacant_seconds, suspended_seconds, unobserved_seconds, availability: as in cluster_availability
SELECT
  trunc(day, 'MONTH') AS month,
  cluster_id,
  sum(led_seconds) AS led_seconds,
  sum(vacant_seconds) AS vacant_seconds,
  sum(suspended_seconds) AS suspended_seconds,
  sum(unobserved_seconds) AS unobserved_seconds,
  sum(led_seconds) / nullif(sum(led_seconds) + sum(vacant_seconds), 0) AS availability
FROM cluster_availability
GROUP BY month, cluster_id
