-- Which state did each leadership have, from when to when: led by whom, vacant, or unreadable?
--
-- One row for each stretch. `state`: HELD (by `session_id` at `address`), VACANT (no leader), UNREADABLE (the entry cannot be read). A stretch
-- lasts until another state is observed, also through unobserved time (see `sight`). So `how_it_ended` DISCOVERED means: it ended unobserved before
-- `ended_at`. Null: it was the state when the log ended. The records of all observers are merged by their clocks, which should agree.
-- `before_…`: the previous leader, since the job began. `event_date`: the UTC date of `ended_at`, null if that is null; a condition on it reads only
-- the files of those dates. The definition is in `_stretches.sql`.
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
