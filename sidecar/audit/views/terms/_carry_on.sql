-- What of the time before `:end` matters afterwards?
--
-- `role`: stretch, a state that lasts; judgement, the last fact about a writing, of the last day (R1) or the last of all if the leader was revoked;
-- term, a stretch with a leader that ended within the last day (R4); found, a first look of an observer within the last day (R2); known, of which time
-- the coverage is known.
WITH judgements AS (
  SELECT cluster_id, component, job_id, at, recorded_at, id, kind, writing
  FROM (
    SELECT
      *,
      row_number() OVER (PARTITION BY cluster_id, component, job_id, writing ORDER BY at DESC, recorded_at DESC, id DESC) AS of_writing,
      row_number() OVER (PARTITION BY cluster_id, component, job_id ORDER BY at DESC, recorded_at DESC, id DESC) AS of_all
    FROM (
      SELECT
        cluster_id, component, job_id, observed_at AS at, recorded_at, id, kind,
        coalesce(CAST(position.mzxid AS STRING), concat_ws('/', position.uid, position.resource_version)) AS writing
      FROM _transitions
      WHERE kind <> 'DISCOVERED' AND (kind <> 'OBSCURED' OR connection = 'CONNECTED')
      UNION ALL
      SELECT cluster_id, component, job_id, at, recorded_at, id, kind, writing FROM _carry WHERE role = 'judgement'
    )
    WHERE at < :end AND writing <> ''
  )
  WHERE
    of_writing = 1 AND unix_micros(at) >= unix_micros(:end) - 86400000000
    OR of_all = 1 AND kind = 'REVOKED' AND unix_micros(at) >= unix_micros(:end) - 90 * 86400000000
)
SELECT
  CASE WHEN began_at < :end AND coalesce(ended_at >= :end, true) THEN 'stretch' ELSE 'term' END AS role,
  cluster_id, component, job_id, CAST(NULL AS STRING) AS observer, began_at AS at, CAST(NULL AS TIMESTAMP) AS recorded_at, best.id,
  best.kind, session_id, best.address, best.last_known_session_id, best.last_known_address, best.vacant_seconds,
  best.downtime_seconds_at_least, best.downtime_seconds_at_most, best.returned, best.split, best.episode_id, state,
  CAST(NULL AS STRING) AS writing, best.at AS best_at, confirmed_at,
  CASE WHEN ended_at < :end THEN ended_at END AS ended_at, before, new_term
FROM _stretches
WHERE
  began_at < :end AND (
    coalesce(ended_at >= :end, true) OR state = 'HELD' AND unix_micros(ended_at) >= unix_micros(:end) - 86400000000
  )
UNION ALL
SELECT
  'judgement', cluster_id, component, job_id, NULL, at, recorded_at, id, kind, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, writing, NULL, NULL, NULL, NULL, NULL
FROM judgements
UNION ALL
SELECT
  'found', cluster_id, NULL, NULL, observer, max(observed_at), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM _transitions
WHERE
  kind = 'DISCOVERED' AND component <> 'job' AND last_known_session_id IS NULL AND observed_at < :end
  AND unix_micros(observed_at) >= unix_micros(:end) - 86400000000
GROUP BY cluster_id, observer
UNION ALL
SELECT
  'known', cluster_id, NULL, NULL, NULL, min(began_at), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, max(ended_at), NULL, NULL
FROM (
  SELECT cluster_id, began_at, ended_at FROM _periods
  WHERE event_date < date_from_unix_date(CAST(unix_micros(:end) DIV 86400000000 AS INT))
  UNION ALL
  SELECT cluster_id, at, ended_at FROM _carry WHERE role = 'known'
)
GROUP BY cluster_id
