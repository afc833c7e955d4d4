-- Which state did each leadership have, from when to when: led by whom, vacant, or unreadable?
--
-- One row for each stretch. `state`: HELD (by `session_id` at `address`), VACANT (no leader), UNREADABLE (the entry cannot be read). A stretch
-- lasts until another state is observed, also through unobserved time (see `sight`). So `how_it_ended` DISCOVERED means: it ended unobserved before
-- `ended_at`. Null: it was the state when the log ended. The records of all observers are merged by their clocks, which should agree.
-- `before_…`: the previous leader, since the job began.
WITH facts AS (
  SELECT
    cluster_id, component, job_id, observed_at AS at, recorded_at, id, kind, after_session_id AS session_id, after_address AS address,
    last_known_session_id, last_known_address, vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, coalesce(returned, false) AS returned, coalesce(split, false) AS split,
    episode_id,
    CASE
      WHEN kind = 'RETIRED' THEN 'GONE'
      WHEN kind = 'OBSCURED' THEN 'UNREADABLE'
      WHEN after_session_id IS NULL THEN 'VACANT'
      ELSE 'HELD'
    END AS state,
    coalesce(CAST(position.mzxid AS STRING), concat_ws('/', position.uid, position.resource_version)) AS writing
  FROM transitions
  WHERE kind <> 'OBSCURED' OR view = 'CONNECTED'  -- without a connection the time is unobserved: see `sight`
),
judged AS (
  SELECT *, last_value(nullif(kind, 'DISCOVERED'), true) OVER (
    PARTITION BY cluster_id, component, job_id, writing
    ORDER BY at, recorded_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS judged
  FROM facts
),
compared AS (
  SELECT *, struct(state, session_id) <=> lag(struct(state, session_id)) OVER (
    PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id
  ) AS goes_on
  FROM judged
  -- A new observer may discover a leader whose end another observer has seen: in Kubernetes its address remains.
  WHERE NOT (kind = 'DISCOVERED' AND state = 'HELD' AND writing <> '' AND coalesce(judged, '') IN ('REVOKED', 'RETIRED'))
),
numbered AS (
  SELECT
    *,
    sum(CASE WHEN goes_on THEN 0 ELSE 1 END) OVER (
      PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id ROWS UNBOUNDED PRECEDING
    ) AS nth
  FROM compared
),
stretches AS (
  SELECT
    cluster_id, component, job_id, nth, state, session_id, min(at) AS began_at, max(at) AS confirmed_at,
    -- Of several observers, prefer one that observed the beginning, and the vacancy before it.
    min_by(
      struct(
        kind, address, last_known_session_id, last_known_address, vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most,
        returned, split, episode_id
      ),
      struct(kind = 'DISCOVERED', vacant_seconds IS NULL, downtime_seconds_at_most IS NULL, at)
    ) AS best
  FROM numbered
  GROUP BY cluster_id, component, job_id, nth, state, session_id
),
followed AS (
  SELECT
    *,
    lead(began_at) OVER (PARTITION BY cluster_id, component, job_id ORDER BY nth) AS next_at,
    lead(best.kind) OVER (PARTITION BY cluster_id, component, job_id ORDER BY nth) AS next_kind,
    sum(CASE WHEN state = 'GONE' THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster_id, component, job_id ORDER BY nth ROWS UNBOUNDED PRECEDING
    ) AS life
  FROM stretches
),
preceded AS (
  SELECT *, last_value(CASE WHEN state = 'HELD' THEN struct(session_id, best.address) END, true) OVER (
    PARTITION BY cluster_id, component, job_id, life ORDER BY nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before
  FROM followed
),
-- An observer without state (its disk was lost) discovers every existing job. A job that it did not discover has ended unobserved.
first_looks AS (
  SELECT cluster_id, array_sort(collect_list(struct(began_at, at AS ended_at))) AS looks
  FROM (
    SELECT *, max(CASE WHEN began_at IS NULL THEN at END) OVER (
      PARTITION BY cluster_id, observer ORDER BY at, began_at NULLS FIRST ROWS UNBOUNDED PRECEDING
    ) AS found_at
    FROM (
      SELECT cluster_id, observer, `to` AS at, `from` AS began_at FROM coverage WHERE state = 'blind'
      UNION ALL
      SELECT cluster_id, observer, observed_at AS at, NULL AS began_at
      FROM transitions
      WHERE kind = 'DISCOVERED' AND component <> 'job' AND last_known_session_id IS NULL
    )
  )
  WHERE began_at <= found_at
  GROUP BY cluster_id
),
ended AS (
  SELECT preceded.*, get(filter(looks, look -> look.began_at > confirmed_at), 0).ended_at AS missed_at
  FROM preceded LEFT JOIN first_looks
    ON preceded.cluster_id = first_looks.cluster_id AND next_at IS NULL AND component = 'job'
)
SELECT
  cluster_id,
  component,
  job_id,
  state,
  began_at,
  coalesce(next_at, missed_at) AS ended_at,
  best.kind AS how_it_began,
  coalesce(next_kind, CASE WHEN missed_at IS NOT NULL THEN 'DISCOVERED' END) AS how_it_ended,
  best.address,
  session_id,
  CASE WHEN before.session_id <> session_id THEN before.address ELSE best.last_known_address END AS before_address,
  CASE WHEN before.session_id <> session_id THEN before.session_id ELSE best.last_known_session_id END AS before_session_id,
  best.vacant_seconds,
  best.downtime_seconds_at_least,
  best.downtime_seconds_at_most,
  best.returned,
  best.split,
  best.episode_id
FROM ended
WHERE state <> 'GONE'
