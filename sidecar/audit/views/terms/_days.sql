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
      cluster_id,
      component,
      state,
      unix_micros(greatest(began_at, :begin)) AS began,
      unix_micros(least(ended_at, until)) AS ended
    FROM _stretches JOIN _limits USING (cluster_id)
  ) LATERAL VIEW explode(sequence(began DIV 86400000000, (ended - 1) DIV 86400000000)) AS day
  WHERE began < ended
),
sight_by_day AS (
  SELECT
    cluster_id,
    day,
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
  cluster_id,
  component,
  sum(CASE WHEN state = 'HELD' THEN observed ELSE 0L END) AS led,
  sum(CASE WHEN state = 'VACANT' THEN observed ELSE 0L END) AS vacant,
  sum(lasted) AS lasted,
  sum(known) AS known,
  date_from_unix_date(CAST(day AS INT)) AS event_date
FROM measured
GROUP BY cluster_id, component, day
