-- What could nobody see?
--
-- `what` is BLIND, a stretch in which no observer could see the cluster's store; UNREADABLE, one in which what stood there of one component
-- could not be read; CHANGES, writes (in Kubernetes: elections) that nobody saw, found out afterwards at `ended_at`: exactly `changes` of them or,
-- where that is null, `changes_at_least`. What one observer missed and another one saw is not here. Nothing is known of the time before the first
-- `sight` of a cluster, nor after the last coverage record (`known_until`): a stretch that goes on is in the log up to an hour late.
WITH gaps AS (
  SELECT
    cluster_id,
    sight.ended_at AS began_at,
    coalesce(lead(sight.began_at) OVER (PARTITION BY cluster_id ORDER BY sight.began_at), known_until.until) AS ended_at
  FROM sight JOIN known_until USING (cluster_id)
  UNION ALL
  SELECT cluster_id, known_until.since, known_until.until
  FROM known_until LEFT ANTI JOIN sight USING (cluster_id)
),
-- What stands there afterwards is one writing, whoever looked: the least that was missed before it counts.
missed AS (
  SELECT
    cluster_id,
    component,
    job_id,
    min(observed_at) AS at,
    bool_and(kind = 'DISCOVERED') AS found_later,
    min_by(
      struct(unobserved AS exactly, coalesce(unobserved_at_least, unobserved) AS at_least),
      struct(coalesce(unobserved_at_least, unobserved), unobserved IS NULL)
    ) AS least
  FROM transitions
  WHERE coalesce(unobserved_at_least, unobserved) IS NOT NULL
  GROUP BY
    cluster_id, component, job_id, kind = 'REVOKED', after_session_id,
    coalesce(CAST(position.mzxid AS STRING), concat_ws('/', position.uid, position.resource_version), id)
)
SELECT
  cluster_id, 'BLIND' AS what, CAST(NULL AS STRING) AS component, CAST(NULL AS STRING) AS job_id, began_at, ended_at,
  (unix_micros(ended_at) - unix_micros(began_at)) / 1e6D AS seconds, CAST(NULL AS BIGINT) AS changes, CAST(NULL AS BIGINT) AS changes_at_least
FROM gaps
WHERE began_at < ended_at
UNION ALL
SELECT
  cluster_id, 'UNREADABLE', component, job_id, began_at, ended_at, (unix_micros(ended_at) - unix_micros(began_at)) / 1e6D, NULL, NULL
FROM leadership
WHERE state = 'UNREADABLE'
UNION ALL
SELECT cluster_id, 'CHANGES', component, job_id, NULL, at, NULL, least.exactly, least.at_least
FROM missed LEFT ANTI JOIN sight
  ON found_later AND missed.cluster_id = sight.cluster_id AND sight.began_at < missed.at AND missed.at < sight.ended_at
WHERE least.at_least > 0
