-- The changes of leader from `:begin` until `:end`, without their causes. See `leader_changes`.
SELECT
  cluster_id, component, job_id, began_at AS changed_at, before_address, address AS after_address, before_session_id, session_id AS after_session_id,
  vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, how_it_began AS kind, episode_id,
  date_from_unix_date(CAST(unix_micros(began_at) DIV 86400000000 AS INT)) AS event_date
FROM _stretches
WHERE began_at >= :begin AND began_at < :end AND opens_term AND NOT returned AND before_session_id <> session_id
