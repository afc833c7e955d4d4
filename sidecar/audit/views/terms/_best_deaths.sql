-- Why did the leader's process end, for each failover: by the observer that knows most?
--
-- A reason of high confidence before one of medium confidence, before none; then the first one.
SELECT episode_id, death.reason, death.confidence, death.ended_at
FROM (
  SELECT
    episode_id,
    min_by(
      struct(reason, confidence, ended_at),
      struct(CASE confidence WHEN 'high' THEN 1 WHEN 'medium' THEN 2 ELSE 3 END, observed_at, observer, id)
    ) AS death
  FROM deaths
  GROUP BY episode_id
)
