-- From when until when is the coverage of each cluster known?
--
-- One row for each cluster. An observer records its coverage when it changes, and at least once an hour. So the time after `until` is not known
-- yet: it is neither observed nor unobserved, and in no other figure. Records of other observers may still arrive, and reduce the unobserved
-- time.
--
-- * cluster_id: as in transitions
-- * since: When the first recorded coverage began.
-- * until: When the last recorded coverage ended.
SELECT cluster_id, min(began_at) AS since, max(ended_at) AS until
FROM (
  SELECT cluster_id, began_at, ended_at FROM _periods
  UNION ALL
  SELECT cluster_id, at, ended_at FROM _carry WHERE role = 'known'
)
GROUP BY cluster_id
