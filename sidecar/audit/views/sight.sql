-- When was each cluster's store observed?
--
-- One row for each stretch in which at least one observer was connected. Observers record coverage at least once an hour, so the last row of a
-- cluster may end up to an hour ago. Later time is not known yet (`known_until`).
--
-- * cluster_id: as in transitions
-- * began_at: When the first observer was connected.
-- * ended_at: Until when the last observer was connected.
SELECT
  cluster_id,
  min(began_at) AS began_at,
  max(ended_at) AS ended_at
FROM (
  SELECT *, sum(CASE WHEN began_at <= seen_until THEN 0 ELSE 1 END) OVER (
    PARTITION BY cluster_id ORDER BY began_at, ended_at ROWS UNBOUNDED PRECEDING
  ) AS nth
  FROM (
    SELECT
      cluster_id,
      began_at,
      ended_at,
      max(ended_at) OVER (
        PARTITION BY cluster_id ORDER BY began_at, ended_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS seen_until
    FROM _periods
    WHERE state = 'seeing'
  )
)
GROUP BY cluster_id, nth
