-- In which parts of the time was each cluster led, vacant, suspended and observed?
--
-- From its first coverage until its last one, without holes. Led: dispatcher, resource manager and REST server have a leader. Vacant: one of them
-- has none. Microseconds. No part is longer than a UTC day.
WITH stretches AS (
  SELECT cluster_id, began_at, ended_at, struct(1 AS seen, 0 AS suspended, 0 AS vacant, 0 AS held) AS adds FROM sight
  UNION ALL
  SELECT cluster_id, began_at, ended_at, struct(0, 1, 0, 0)
  FROM coverage
  WHERE suspended AND state = 'seeing' AND began_at < ended_at AND abs(unix_micros(observed_at) - unix_micros(ended_at)) <= 86400000000
  UNION ALL
  SELECT
    cluster_id, began_at, ended_at,
    struct(0, 0, CASE WHEN state = 'VACANT' THEN 1 ELSE 0 END, CASE WHEN state = 'HELD' THEN 1 ELSE 0 END)
  FROM leadership
  WHERE component <> 'job' AND state <> 'UNREADABLE'
),
-- Each stretch adds at its begin, and takes away at its end; what adds nothing begins a part: each day, and the whole time.
edges AS (
  SELECT cluster_id, edge.at, edge.sign, adds
  FROM (
    SELECT
      cluster_id, adds, greatest(unix_micros(began_at), unix_micros(since)) AS began,
      least(coalesce(unix_micros(ended_at), unix_micros(until)), unix_micros(until)) AS ended
    FROM stretches JOIN known_until USING (cluster_id)
  ) LATERAL VIEW explode(array(struct(began AS at, 1 AS sign), struct(ended AS at, -1 AS sign))) AS edge
  WHERE began < ended
  UNION ALL
  SELECT cluster_id, edge, 0, struct(0, 0, 0, 0)
  FROM known_until LATERAL VIEW explode(
    concat(
      array(unix_micros(since), unix_micros(until)),
      transform(
        sequence(unix_micros(since) DIV 86400000000 + 1, greatest((unix_micros(until) - 1) DIV 86400000000, unix_micros(since) DIV 86400000000 + 1)),
        day -> least(day * 86400000000, unix_micros(until))
      )
    )
  ) AS edge
),
moments AS (
  SELECT
    cluster_id, at,
    sum(sign * adds.seen) AS seen, sum(sign * adds.suspended) AS suspended, sum(sign * adds.vacant) AS vacant, sum(sign * adds.held) AS held
  FROM edges
  GROUP BY cluster_id, at
)
SELECT
  cluster_id,
  at AS began,
  lead(at, 1, at) OVER in_order AS ended,
  sum(seen) OVER in_order > 0 AS is_seen,
  sum(suspended) OVER in_order > 0 AS is_suspended,
  sum(vacant) OVER in_order > 0 AS is_vacant,
  sum(held) OVER in_order = 3 AS is_held
FROM moments
WINDOW in_order AS (PARTITION BY cluster_id ORDER BY at)
