-- On each day, for how long was each component led, for how long not, and for how long could nobody tell?
--
-- To be led is to have a published leader: one that has died counts until the store finds out (`failovers` bounds for how long that was).
-- One row for each cluster, component and UTC day; seconds, of jobs the sum over all of them. Time counts as led or vacant only while an
-- observer could see the store; all other time is in `unobserved_seconds` and is never taken for up. `availability` is the led part of what was
-- seen, null where nothing was. Days begin and end with what is recorded: time after `known_until` counts as nothing yet, and a job counts from
-- when it was first seen until it ended.
WITH stretches AS (
  SELECT
    cluster_id,
    component,
    state,
    unix_micros(began_at) AS began,
    unix_micros(least(ended_at, until)) AS ended
  FROM leadership JOIN known_until USING (cluster_id)
),
pieces AS (
  SELECT cluster_id, component, state, day, greatest(began, day * 86400000000) AS began, least(ended, (day + 1) * 86400000000) AS ended
  FROM stretches LATERAL VIEW explode(sequence(began DIV 86400000000, (ended - 1) DIV 86400000000)) AS day
  WHERE began < ended
),
seen AS (
  SELECT
    cluster_id,
    day,
    collect_list(struct(
      greatest(unix_micros(began_at), day * 86400000000) AS began, least(unix_micros(ended_at), (day + 1) * 86400000000) AS ended
    )) AS looks
  FROM sight
  LATERAL VIEW explode(sequence(unix_micros(began_at) DIV 86400000000, (unix_micros(ended_at) - 1) DIV 86400000000)) AS day
  GROUP BY cluster_id, day
),
measured AS (
  SELECT
    pieces.*,
    ended - began AS lasted,
    aggregate(
      coalesce(looks, array()), 0L, (sum, look) -> sum + greatest(0L, least(ended, look.ended) - greatest(began, look.began))
    ) AS observed
  FROM pieces LEFT JOIN seen USING (cluster_id, day)
),
summed AS (
  SELECT
    cluster_id,
    component,
    day,
    sum(lasted) AS lasted,
    sum(CASE WHEN state = 'HELD' THEN observed ELSE 0 END) AS led,
    sum(CASE WHEN state = 'VACANT' THEN observed ELSE 0 END) AS vacant
  FROM measured
  GROUP BY cluster_id, component, day
)
SELECT
  cluster_id,
  component,
  date_from_unix_date(CAST(day AS INT)) AS day,
  led / 1e6D AS led_seconds,
  vacant / 1e6D AS vacant_seconds,
  (lasted - led - vacant) / 1e6D AS unobserved_seconds,
  led / nullif(led + vacant, 0) AS availability
FROM summed
