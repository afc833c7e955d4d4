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
  cluster_id,
  day,
  led / 1e6D AS led_seconds,
  vacant / 1e6D AS vacant_seconds,
  suspended / 1e6D AS suspended_seconds,
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
