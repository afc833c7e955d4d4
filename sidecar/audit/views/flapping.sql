-- Which components changed their leader repeatedly?
--
-- One row for each bout: three or more changes of leader, any three in a row within an hour. Leaders that return with their old session id count
-- too, changes of a drill do not.
--
-- * cluster_id, component, job_id: as in transitions
-- * began_at: The first change of the bout.
-- * ended_at: The last change of the bout.
-- * changes: How many there were.
-- * seconds: From `began_at` to `ended_at`.
-- * leaders: The addresses of the leaders, sorted, at most ten.
-- * split: Whether leadership was split: two JobManagers alternated.
WITH changes AS (
  SELECT
    cluster_id, component, job_id, began_at, address, split,
    lag(began_at) OVER leadership AS last_at,
    began_at <= lag(began_at, 2) OVER leadership + INTERVAL 1 HOUR AS is_third,
    lead(began_at) OVER leadership <= lag(began_at) OVER leadership + INTERVAL 1 HOUR AS is_second,
    lead(began_at, 2) OVER leadership <= began_at + INTERVAL 1 HOUR AS is_first
  FROM leadership LEFT ANTI JOIN _drilled ON leadership.episode_id = _drilled.episode_id
  WHERE state = 'HELD' AND before_session_id <> session_id
  WINDOW leadership AS (PARTITION BY cluster_id, component, job_id ORDER BY began_at, session_id)
),
bouts AS (
  SELECT *, sum(CASE WHEN is_third OR is_second THEN 0 ELSE 1 END) OVER (
    PARTITION BY cluster_id, component, job_id ORDER BY began_at ROWS UNBOUNDED PRECEDING
  ) AS nth
  FROM changes
  WHERE is_third OR is_second OR is_first
)
SELECT
  cluster_id,
  component,
  job_id,
  min(began_at) AS began_at,
  max(began_at) AS ended_at,
  count(*) AS changes,
  (unix_micros(max(began_at)) - unix_micros(min(began_at))) / 1e6D AS seconds,
  slice(array_sort(collect_set(address)), 1, 10) AS leaders,
  bool_or(split) AS split
FROM bouts
GROUP BY cluster_id, component, job_id, nth
