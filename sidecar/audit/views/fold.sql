---- _periods
-- Which periods did each observer cover?
--
-- The coverage records, without those of a clock that jumped: a period ended within a day of its record, and a period of sight counts for at most a
-- day before it (an observer records at least once an hour). So the periods of a day are found in three dates.
SELECT
  cluster_id, observer, state, CASE
    WHEN state = 'seeing' THEN greatest(began_at, timestamp_micros(unix_micros(observed_at) - 86400000000))
    ELSE began_at
  END AS began_at, ended_at, event_date
FROM _coverage
WHERE began_at < ended_at AND abs(unix_micros(observed_at) - unix_micros(ended_at)) <= 86400000000

---- _stretches
-- Which state did each leadership have, from when to when?
--
-- THE definition of leadership: a fold over the transitions from `:begin` on, in the order of the observers' clocks. `_carry` holds what of the time
-- before still matters: nothing, for an answer from scratch. Its rules R1 to R4 look a bounded time back and ahead (docs/project/adr/0029), so that
-- every stretch that ended before `:end` is final if `_transitions` reach two hours beyond it.
WITH facts AS (
  SELECT
    'fact' AS role, cluster_id, component, job_id, observed_at AS at, recorded_at, id, kind, after_session_id AS session_id,
    CASE
      WHEN kind = 'RETIRED' THEN 'GONE'
      WHEN kind = 'OBSCURED' THEN 'UNREADABLE'
      WHEN after_session_id IS NULL THEN 'VACANT'
      ELSE 'HELD'
    END AS state,
    coalesce(CAST(position.mzxid AS STRING), concat_ws('/', position.uid, position.resource_version)) AS writing,
    observed_at AS confirmed_at, CAST(NULL AS STRUCT<session_id: STRING, address: STRING>) AS before, CAST(NULL AS BOOLEAN) AS new_term,
    -- One column, which Spark copies as a whole: each window copies its rows.
    struct(
      kind, after_address AS address, last_known_session_id, last_known_address, vacant_seconds, downtime_seconds_at_least,
      downtime_seconds_at_most, coalesce(returned, false) AS returned, coalesce(split, false) AS split, episode_id, observed_at AS at, id
    ) AS record
  FROM _transitions
  WHERE kind <> 'OBSCURED' OR connection = 'CONNECTED'  -- without a connection the time is unobserved: see `sight`
  UNION ALL
  SELECT
    role, cluster_id, component, job_id, at, recorded_at, id, kind, session_id, state, writing, confirmed_at, before, new_term,
    struct(
      kind, address, last_known_session_id, last_known_address, vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most,
      returned, split, episode_id, best_at AS at, id
    )
  FROM _carry
  WHERE role IN ('stretch', 'judgement')
),
-- A new observer may discover a leader whose end another observer has seen: in Kubernetes its address remains. R1: it is dead if that was written
-- last (and observed within 90 days), or within a day.
dead AS (
  SELECT id
  FROM (
    SELECT
      *,
      last_value(CASE WHEN kind <> 'DISCOVERED' THEN struct(kind, at) END, true) OVER (
        PARTITION BY cluster_id, component, job_id, writing
        ORDER BY at, recorded_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS judgement,
      last_value(CASE WHEN kind <> 'DISCOVERED' THEN struct(kind, writing, at) END, true) OVER (
        PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS newest
    FROM facts
    WHERE role <> 'stretch' AND writing <> ''
  )
  WHERE
    kind = 'DISCOVERED' AND state = 'HELD' AND role = 'fact' AND (
      judgement.kind IN ('REVOKED', 'RETIRED') AND unix_micros(at) - unix_micros(judgement.at) <= 86400000000
      OR newest.kind = 'REVOKED' AND newest.writing = writing AND unix_micros(at) - unix_micros(newest.at) <= 90 * 86400000000
    )
),
believed AS (
  SELECT /*+ BROADCAST(dead) */
    *, lead(struct(state, session_id, at)) OVER (PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id) AS next
  FROM facts LEFT ANTI JOIN dead ON facts.id = dead.id
  WHERE role <> 'judgement'
),
-- An observer without state (its disk was lost) discovers every existing job: its first look is a blind period in which it discovers what it does
-- not remember. R2: a job of which nothing is recorded from the beginning of a first look until an hour after its end has ended unobserved.
first_looks AS (
  SELECT cluster_id, array_sort(collect_list(struct(ended_at, began_at))) AS looks
  FROM (
    SELECT *, max(CASE WHEN began_at IS NULL THEN ended_at END) OVER (
      PARTITION BY cluster_id, observer ORDER BY ended_at, began_at NULLS FIRST ROWS UNBOUNDED PRECEDING
    ) AS found_at
    FROM (
      SELECT cluster_id, observer, ended_at, began_at FROM _periods WHERE state = 'blind'
      UNION ALL
      SELECT cluster_id, observer, observed_at, NULL
      FROM _transitions
      WHERE kind = 'DISCOVERED' AND component <> 'job' AND last_known_session_id IS NULL
      UNION ALL
      SELECT cluster_id, observer, at, NULL FROM _carry WHERE role = 'found'
    )
  )
  WHERE began_at <= found_at AND unix_micros(ended_at) - unix_micros(found_at) <= 86400000000 AND ended_at >= :begin
  GROUP BY cluster_id
),
missed AS (
  SELECT /*+ BROADCAST(first_looks) */
    believed.*,
    CASE
      WHEN component = 'job' AND state <> 'GONE' THEN get(filter(
        looks,
        look -> look.began_at > confirmed_at AND (next IS NULL OR unix_micros(next.at) - unix_micros(look.ended_at) > 3600000000)
      ), 0).ended_at
    END AS missed_at
  FROM believed LEFT JOIN first_looks ON believed.cluster_id = first_looks.cluster_id
),
-- From `believed` to `followed` all windows have one order, so that Spark sorts the rows once. A stretch becomes its last row.
numbered AS (
  SELECT
    *,
    count_if(ends) OVER earlier AS nth,
    last_value(CASE WHEN ends THEN next.at END, true) OVER earlier AS began_after_another_at,
    first_value(struct(at, before, new_term)) OVER in_order AS first,
    max(CASE WHEN at < :end THEN confirmed_at END) OVER in_order AS last_confirmed_at
  FROM (SELECT *, missed_at IS NOT NULL OR NOT struct(state, session_id) <=> struct(next.state, next.session_id) AS ends FROM missed)
  WINDOW
    in_order AS (PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id ROWS UNBOUNDED PRECEDING),
    earlier AS (PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
judged AS (
  SELECT
    *,
    -- R3: of several observers, prefer one that observed the beginning, and the vacancy before it, within an hour.
    min(CASE WHEN unix_micros(record.at) - unix_micros(began_at) <= 3600000000 THEN struct(
      -nth, record.kind = 'DISCOVERED', record.vacant_seconds IS NULL, record.downtime_seconds_at_most IS NULL, record.at AS at, id, record
    ) END) OVER (PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id ROWS UNBOUNDED PRECEDING).record AS best
  FROM (SELECT *, coalesce(began_after_another_at, first.at) AS began_at, CASE WHEN nth = 0 THEN first END AS carried_over FROM numbered)
),
followed AS (
  SELECT
    *,
    lead(struct(began_at, best.kind AS kind)) OVER in_order AS next_stretch,
    last_value(  -- the previous leader, since the job began
      CASE
        WHEN state = 'GONE' OR missed_at IS NOT NULL THEN struct(CAST(NULL AS STRING) AS session_id, CAST(NULL AS STRING) AS address)
        WHEN state = 'HELD' THEN struct(session_id, best.address) ELSE carried_over.before
      END, true
    ) OVER (
      PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS preceding
  FROM judged
  WHERE ends
  WINDOW in_order AS (PARTITION BY cluster_id, component, job_id ORDER BY at, recorded_at, id)
),
-- A leader session id is one term, also if clocks that differ split it. R4: until a day without it has passed. The row of a term is its first
-- stretch, or the second if only that was observed from its beginning, within an hour.
terms AS (
  SELECT
    *,
    lag(struct(best.kind = 'DISCOVERED' AS discovered, began_at, ended_at, new_term)) OVER of_session AS last,
    lag(struct(ended_at), 2) OVER of_session AS last_but_one,
    lead(CASE WHEN best.kind <> 'DISCOVERED' THEN began_at END) OVER of_session AS next_observed_at
  FROM (
    SELECT
      'stretch' AS role, cluster_id, component, job_id, nth, state, session_id, began_at,
      coalesce(missed_at, next_stretch.began_at) AS ended_at, last_confirmed_at,
      CASE WHEN missed_at IS NOT NULL THEN 'DISCOVERED' ELSE next_stretch.kind END AS how_it_ended,
      best, CASE WHEN preceding.session_id IS NOT NULL THEN preceding ELSE carried_over.before END AS before, carried_over.new_term
    FROM followed
    UNION ALL
    SELECT
      role, cluster_id, component, job_id, -1, 'HELD', session_id, at, ended_at, NULL, NULL,
      struct(
        kind, address, last_known_session_id, last_known_address, vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most,
        returned, split, episode_id, best_at AS at, id
      ),
      before, new_term
    FROM _carry
    WHERE role = 'term'
  )
  WINDOW of_session AS (PARTITION BY cluster_id, component, job_id, state, session_id ORDER BY began_at, nth)
),
placed AS (
  SELECT
    * EXCEPT (new_term),
    coalesce(new_term, last IS NULL OR unix_micros(began_at) - unix_micros(last.ended_at) > 86400000000) AS new_term,
    coalesce(
      last.new_term, last_but_one IS NULL OR unix_micros(last.began_at) - unix_micros(last_but_one.ended_at) > 86400000000
    ) AS last_is_new
  FROM terms
)
SELECT
  cluster_id, component, job_id, state, began_at, ended_at, best.kind AS how_it_began, how_it_ended, best.address, session_id,
  CASE WHEN before.session_id <> session_id THEN before.address ELSE best.last_known_address END AS before_address,
  CASE WHEN before.session_id <> session_id THEN before.session_id ELSE best.last_known_session_id END AS before_session_id,
  best.vacant_seconds, best.downtime_seconds_at_least, best.downtime_seconds_at_most, best.returned, best.split, best.episode_id,
  state = 'HELD' AND (
    new_term AND NOT coalesce(
      best.kind = 'DISCOVERED' AND unix_micros(next_observed_at) - unix_micros(began_at) <= 3600000000, false
    )
    OR NOT new_term AND coalesce(
      best.kind <> 'DISCOVERED' AND last.discovered AND last_is_new
      AND unix_micros(began_at) - unix_micros(last.began_at) <= 3600000000, false
    )
  ) AS opens_term,
  CASE
    WHEN began_at < :end AND (
      coalesce(ended_at >= :end, true) OR state = 'HELD' AND unix_micros(ended_at) >= unix_micros(:end) - 86400000000
    ) THEN struct(
      best.id, best.last_known_session_id, best.last_known_address, best.at AS best_at, last_confirmed_at AS confirmed_at,
      CASE WHEN ended_at < :end THEN ended_at END AS ended_at, before, new_term
    )
  END AS carried
FROM placed
WHERE role = 'stretch' AND state <> 'GONE'

---- _carry_on
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
      WHERE
        kind <> 'DISCOVERED' AND (kind <> 'OBSCURED' OR connection = 'CONNECTED')
        AND event_date >= date_from_unix_date(CAST(unix_micros(:end) DIV 86400000000 AS INT) - 90)
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
  CASE WHEN carried.ended_at IS NULL THEN 'stretch' ELSE 'term' END AS role, cluster_id, component, job_id,
  CAST(NULL AS STRING) AS observer, began_at AS at, CAST(NULL AS TIMESTAMP) AS recorded_at, carried.id, how_it_began AS kind, session_id,
  address, carried.last_known_session_id, carried.last_known_address, vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most,
  returned, split, episode_id, state, CAST(NULL AS STRING) AS writing, carried.best_at, carried.confirmed_at, carried.ended_at,
  carried.before, carried.new_term
FROM _stretches
WHERE carried IS NOT NULL
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
  AND event_date >= date_from_unix_date(CAST(unix_micros(:end) DIV 86400000000 AS INT) - 1)
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

---- _limits
-- Until when is the time of each cluster counted?
SELECT cluster_id, until FROM known_until

---- _leader_changes
-- The changes of leader from `:begin` until `:end`, without their causes. See `leader_changes`.
SELECT
  cluster_id, component, job_id, began_at AS changed_at, before_address, address AS after_address, before_session_id, session_id AS after_session_id,
  vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, how_it_began AS kind, episode_id,
  date_from_unix_date(CAST(unix_micros(began_at) DIV 86400000000 AS INT)) AS event_date
FROM _stretches
WHERE began_at >= :begin AND began_at < :end AND opens_term AND NOT returned AND before_session_id <> session_id

---- _days
-- On each UTC day, for how long was each component led and vacant, and how long did its stretches last?
--
-- Microseconds, summed over all jobs.
--
-- * cluster_id, component: as in transitions
-- * led: Microseconds with a published leader, while an observer was connected.
-- * vacant: Microseconds without a published leader, while an observer was connected.
-- * lasted: Microseconds of all states, until the end of the day.
-- * known: The part of `lasted` until the last coverage record of the cluster in that day, which is what counts on the last day of which anything
--   is known.
-- * event_date: The UTC day.
WITH days AS (  -- from :begin on
  SELECT cluster_id, component, state, day, greatest(began, day * 86400000000) AS began, least(ended, (day + 1) * 86400000000) AS ended
  FROM (
    SELECT
      cluster_id, component, state,
      unix_micros(greatest(began_at, :begin)) AS began,
      unix_micros(least(ended_at, until)) AS ended
    FROM _stretches JOIN _limits USING (cluster_id)
  ) LATERAL VIEW explode(sequence(began DIV 86400000000, (ended - 1) DIV 86400000000)) AS day
  WHERE began < ended
),
sight_by_day AS (
  SELECT
    cluster_id, day,
    collect_list(struct(greatest(began, day * 86400000000) AS began, least(ended, (day + 1) * 86400000000) AS ended)) AS sights
  FROM (
    SELECT cluster_id, unix_micros(greatest(began_at, :begin)) AS began, unix_micros(least(ended_at, :end)) AS ended FROM _sight
  ) LATERAL VIEW explode(sequence(began DIV 86400000000, (ended - 1) DIV 86400000000)) AS day
  WHERE began < ended
  GROUP BY cluster_id, day
),
known_by_day AS (
  SELECT cluster_id, day, max(least(ended, (day + 1) * 86400000000)) AS until
  FROM (
    SELECT cluster_id, unix_micros(greatest(began_at, :begin)) AS began, unix_micros(least(ended_at, :end)) AS ended FROM _periods
  ) LATERAL VIEW explode(sequence(began DIV 86400000000, (ended - 1) DIV 86400000000)) AS day
  WHERE began < ended
  GROUP BY cluster_id, day
),
measured AS (
  SELECT
    days.*,
    ended - began AS lasted,
    greatest(0L, least(ended, coalesce(until, 0L)) - began) AS known,
    aggregate(
      coalesce(sights, array()), 0L, (sum, seen) -> sum + greatest(0L, least(ended, seen.ended) - greatest(began, seen.began))
    ) AS observed
  FROM days LEFT JOIN sight_by_day USING (cluster_id, day) LEFT JOIN known_by_day USING (cluster_id, day)
)
SELECT
  cluster_id, component,
  sum(CASE WHEN state = 'HELD' THEN observed ELSE 0L END) AS led,
  sum(CASE WHEN state = 'VACANT' THEN observed ELSE 0L END) AS vacant,
  sum(lasted) AS lasted, sum(known) AS known,
  date_from_unix_date(CAST(day AS INT)) AS event_date
FROM measured
GROUP BY cluster_id, component, day
