-- On each day, for how long was each component led, vacant and unobserved?
--
-- One row for each cluster, component and UTC day; seconds, summed over all jobs. Led: a leader is published. A dead leader counts until the
-- store detects its death (`failovers` bounds that time). Time counts as led or vacant only while an observer was connected; all other time is in
-- `unobserved_seconds` and never counts as up. `availability` is the led part of the observed time, null if there is none. Time after
-- `known_until` is not counted yet; a job counts from its first observation until it ended.
WITH stretches AS (
  SELECT
    cluster_id,
    component,
    state,
    unix_micros(began_at) AS began,
    unix_micros(least(ended_at, until)) AS ended
  FROM leadership JOIN known_until USING (cluster_id)
),
days AS (
  SELECT cluster_id, component, state, day, greatest(began, day * 86400000000) AS began, least(ended, (day + 1) * 86400000000) AS ended
  FROM stretches LATERAL VIEW explode(sequence(began DIV 86400000000, (ended - 1) DIV 86400000000)) AS day
  WHERE began < ended
),
sight_by_day AS (
  SELECT
    cluster_id,
    day,
    collect_list(struct(
      greatest(unix_micros(began_at), day * 86400000000) AS began, least(unix_micros(ended_at), (day + 1) * 86400000000) AS ended
    )) AS sights
  FROM sight
  LATERAL VIEW explode(sequence(unix_micros(began_at) DIV 86400000000, (unix_micros(ended_at) - 1) DIV 86400000000)) AS day
  GROUP BY cluster_id, day
),
measured AS (
  SELECT
    days.*,
    ended - began AS lasted,
    aggregate(
      coalesce(sights, array()), 0L, (sum, seen) -> sum + greatest(0L, least(ended, seen.ended) - greatest(began, seen.began))
    ) AS observed
  FROM days LEFT JOIN sight_by_day USING (cluster_id, day)
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
