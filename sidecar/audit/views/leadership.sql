-- Which state did each leadership have, from when to when: led by whom, vacant, or unreadable?
--
-- One row for each stretch. A stretch lasts until another state is observed, also through unobserved time (see `sight`). The records of all
-- observers are merged by their clocks, which should agree. A condition on `event_date` reads only the files of those dates. The definition is in
-- `_stretches.sql`.
--
-- * cluster_id, component, job_id: as in transitions
-- * state: `HELD` (by `session_id` at `address`), `VACANT` (no leader) or `UNREADABLE` (the entry cannot be read).
-- * began_at: When the state was first observed.
-- * ended_at: When another state was first observed. Null: it was the state when the log ended.
-- * how_it_began: The `kind` of the transition that began it.
-- * how_it_ended: The `kind` of the transition that ended it. `DISCOVERED`: it ended unobserved before `ended_at`. Null: it was the state when
--   the log ended.
-- * address: The leader's address. Null: not `HELD`.
-- * session_id: The leader session id. Null: not `HELD`.
-- * before_address: The previous leader's address, since the job began. Null: none is known.
-- * before_session_id: The previous leader session id, since the job began. Null: none is known.
-- * vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most: as in transitions
-- * returned, split, episode_id: as in transitions
-- * event_date: The UTC date of `ended_at`. Null if that is null.
SELECT
  cluster_id, component, job_id, state, began_at, ended_at, how_it_began, how_it_ended, address, session_id, before_address, before_session_id,
  vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, returned, split, episode_id, event_date
FROM _closed_leadership
UNION ALL
SELECT
  cluster_id, component, job_id, state, began_at, ended_at, how_it_began, how_it_ended, address, session_id, before_address, before_session_id,
  vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most, returned, split, episode_id,
  date_from_unix_date(CAST(unix_micros(ended_at) DIV 86400000000 AS INT))
FROM _stretches
