-- What was not observed?
--
-- What one observer missed and another observed is not listed. The time before the first `sight` of a cluster and after its last coverage record
-- (`known_until`) is not known: an ongoing stretch appears up to an hour late.
--
-- * cluster_id: as in transitions
-- * what: `BLIND`, no observer was connected to the cluster's store. `UNREADABLE`, the entry of one component could not be read. `CHANGES`,
--   unobserved writes (in Kubernetes: elections).
-- * component: The component. Null: all (`BLIND`).
-- * job_id: as in transitions
-- * began_at: When the stretch began. Null: `CHANGES`.
-- * ended_at: When the stretch ended, or when the writes were detected. Null: the entry could not be read when the log ended.
-- * seconds: From `began_at` to `ended_at`. Null if one of them is null.
-- * changes: The number of unobserved writes. Null: not known, or a stretch.
-- * changes_at_least: Its lower bound. Null: a stretch.
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
writes AS (
  SELECT
    struct(
      cluster_id, component, job_id, kind = 'REVOKED' AS is_deletion, after_session_id,
      coalesce(CAST(position.mzxid AS STRING), concat_ws('/', position.uid, position.resource_version), id) AS position
    ) AS write,
    observed_at, kind, unobserved, unobserved_at_least
  FROM transitions
),
-- All observers find the same write afterwards: the smallest number of writes missed before it counts. Nearly always it is 0, and these are left
-- out before anything is grouped.
missed AS (
  SELECT
    write.cluster_id,
    write.component,
    write.job_id,
    min(observed_at) AS at,
    bool_and(kind = 'DISCOVERED') AS found_later,
    min(coalesce(unobserved_at_least, unobserved)) AS at_least,
    min(unobserved) AS exactly
  FROM writes
  LEFT SEMI JOIN (SELECT DISTINCT write FROM writes WHERE unobserved > 0 OR unobserved_at_least > 0) USING (write)
  WHERE coalesce(unobserved_at_least, unobserved) IS NOT NULL
  GROUP BY write
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
SELECT cluster_id, 'CHANGES', component, job_id, NULL, at, NULL, CASE WHEN exactly = at_least THEN exactly END, at_least
FROM missed LEFT ANTI JOIN sight
  ON found_later AND missed.cluster_id = sight.cluster_id AND sight.began_at < missed.at AND missed.at < sight.ended_at
WHERE at_least > 0
