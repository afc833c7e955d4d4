---- leadership
-- Which state did each leadership have, from when to when: led by whom, vacant, or unreadable?
--
-- One row for each stretch. A stretch lasts until another state is observed, also through unobserved time (see `sight`). The records of all
-- observers are merged by their clocks, which should agree.
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

---- known_until
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

---- sight
-- When was each cluster's store observed?
--
-- One row for each stretch in which at least one observer was connected. Observers record coverage at least once an hour, so the last row of a
-- cluster may end up to an hour ago. Later time is not known yet (`known_until`).
--
-- * cluster_id: as in transitions
-- * began_at: When the first observer was connected.
-- * ended_at: Until when the last observer was connected.
SELECT
  cluster_id, min(began_at) AS began_at, max(ended_at) AS ended_at
FROM (
  SELECT *, sum(CASE WHEN began_at <= seen_until THEN 0 ELSE 1 END) OVER (
    PARTITION BY cluster_id ORDER BY began_at, ended_at ROWS UNBOUNDED PRECEDING
  ) AS nth
  FROM (
    SELECT
      cluster_id, began_at, ended_at,
      max(ended_at) OVER (
        PARTITION BY cluster_id ORDER BY began_at, ended_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS seen_until
    FROM _periods
    WHERE state = 'seeing'
  )
)
GROUP BY cluster_id, nth

---- leader_timeline
-- Which leader did each component (of a job: `job_id`) have, from when to when, and how did its term end?
--
-- One row for each term. A leader that was only unobserved has one term.
--
-- * cluster_id, component, job_id: as in transitions
-- * began_at: When the leader was first observed.
-- * ended_at: When it was first observed that it no longer led. Null: the term is not over, as far as the log knows.
-- * seconds: From `began_at` to `ended_at`. Null if that is null.
-- * address: The leader's address.
-- * host: The host in `address`. Null: there is none in it.
-- * session_id: The leader session id.
-- * how_it_began: `GRANTED` after a vacancy, `CHANGED` without one, `DISCOVERED` if it led already when an observer connected.
-- * how_it_ended: `REVOKED`, vacant afterwards. `CHANGED`, another leader followed. `RETIRED`, its job ended. `DISCOVERED`, it ended unobserved
--   before `ended_at`. Null: the term is not over.
-- * before_address, before_session_id: as in leadership
-- * returned, split: as in transitions
-- * event_date: as in leadership
SELECT
  cluster_id, component, job_id, began_at, ended_at, (unix_micros(ended_at) - unix_micros(began_at)) / 1e6D AS seconds, address,
  :host(address) AS host, session_id, how_it_began, how_it_ended, before_address, before_session_id, returned, split, event_date
FROM leadership
WHERE state = 'HELD'

---- leader_changes
-- Which leader of which component took over from which, when, and for how long was no leader published, and none working?
--
-- One row for each leadership term that follows another leader's: the new leader of a component (of a job: `job_id`) differs from the last
-- one known to the log or to the observer. Not one: the first election of a new cluster, a leader that was only unobserved, a leader that
-- returned with its old session id. A dead leader stays published until the store detects its death, so the time without a working leader has
-- bounds. One failed JobManager is one row for each component, with one `episode_id`: `failovers` has one row for it.
--
-- * cluster_id, component, job_id: as in transitions
-- * changed_at: When the new leader was first observed.
-- * before_address: The previous leader's address. Null: not known.
-- * after_address: The new leader's address.
-- * before_host: The host in `before_address`. Null: not known.
-- * after_host: The host in `after_address`. Null: not known.
-- * before_session_id: The previous leader session id.
-- * after_session_id: The new leader session id.
-- * vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most: as in transitions
-- * kind: `GRANTED` after a vacancy, `CHANGED` without one, `DISCOVERED` if it was unobserved: then it happened before `changed_at`.
-- * episode_id: as in transitions
-- * cause: The cause of the episode. Null: it is not over, the job failed over by itself, or no episode was recorded.
-- * event_date: The UTC date of `changed_at`.
-- * death_reason: Why the process of the previous leader ended (`deaths.reason`). Null: no observer recorded that it ended.
-- * recovery_verdict: Whether everything came back (`recoveries.verdict`). `unproven` and null (no observer assessed it) are not good.
-- * drill: Whether it was that of a drill, which no view counts. False while the drill is not over.
SELECT
  cluster_id, component, job_id, changed_at, before_address, after_address, :host(before_address) AS before_host,
  :host(after_address) AS after_host, before_session_id, after_session_id, vacant_seconds, downtime_seconds_at_least,
  downtime_seconds_at_most, kind, episode_id, cause, event_date, death_reason, recovery_verdict,
  drilled IS NOT NULL AS drill
FROM (TABLE _closed_leader_changes UNION ALL TABLE _leader_changes)
-- Grouped, so that Spark leaves out a join if nobody asks for its column.
LEFT JOIN (SELECT episode_id, min(cause) AS cause FROM episodes GROUP BY episode_id) USING (episode_id)
LEFT JOIN (SELECT episode_id, reason AS death_reason FROM _best_deaths) USING (episode_id)
LEFT JOIN (
  SELECT episode_id, min(verdict) AS recovery_verdict FROM _best_recoveries WHERE job_id IS NULL GROUP BY episode_id
) USING (episode_id)
LEFT JOIN (SELECT episode_id, true AS drilled FROM _drilled) USING (episode_id)

---- flapping
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
  cluster_id, component, job_id, min(began_at) AS began_at, max(began_at) AS ended_at, count(*) AS changes,
  (unix_micros(max(began_at)) - unix_micros(min(began_at))) / 1e6D AS seconds,
  slice(array_sort(collect_set(address)), 1, 10) AS leaders,
  bool_or(split) AS split
FROM bouts
GROUP BY cluster_id, component, job_id, nth

---- unobserved
-- What was not observed?
--
-- What one observer missed and another observed is not listed. The time before the first `sight` of a cluster and after its last coverage record
-- (`known_until`) is not known: an ongoing stretch appears up to an hour late.
--
-- * cluster_id: as in transitions
-- * what: `BLIND`, no observer was connected to the cluster's store. `UNREADABLE`, the entry of one component could not be read. `CHANGES`,
--   unobserved writes (in Kubernetes: elections).
-- * component: The component. Null: all (`BLIND`).
-- * job_id: as in transitions
-- * began_at: When the stretch began. Null: `CHANGES`.
-- * ended_at: When the stretch ended, or when the writes were detected. Null: the entry could not be read when the log ended.
-- * seconds: From `began_at` to `ended_at`. Null if one of them is null.
-- * changes: The number of unobserved writes. Null: not known, or a stretch.
-- * changes_at_least: Its lower bound. Null: a stretch.
WITH gaps AS (
  SELECT
    cluster_id, sight.ended_at AS began_at,
    coalesce(lead(sight.began_at) OVER (PARTITION BY cluster_id ORDER BY sight.began_at), known_until.until) AS ended_at
  FROM sight JOIN known_until USING (cluster_id)
  UNION ALL
  SELECT cluster_id, known_until.since, known_until.until
  FROM known_until LEFT ANTI JOIN sight USING (cluster_id)
),
writes AS (
  SELECT
    struct(
      cluster_id, component, job_id, kind = 'REVOKED' AS is_deletion, after_session_id,
      coalesce(CAST(position.mzxid AS STRING), concat_ws('/', position.uid, position.resource_version), id) AS position
    ) AS write,
    observed_at, kind, unobserved, unobserved_at_least
  FROM transitions
),
-- All observers find the same write afterwards: the smallest number of writes missed before it counts. Nearly always it is 0, and these are left
-- out before anything is grouped.
missed AS (
  SELECT
    write.cluster_id, write.component, write.job_id, min(observed_at) AS at,
    bool_and(kind = 'DISCOVERED') AS found_later,
    min(coalesce(unobserved_at_least, unobserved)) AS at_least,
    min(unobserved) AS exactly
  FROM writes
  LEFT SEMI JOIN (SELECT DISTINCT write FROM writes WHERE unobserved > 0 OR unobserved_at_least > 0) USING (write)
  WHERE coalesce(unobserved_at_least, unobserved) IS NOT NULL
  GROUP BY write
)
SELECT
  cluster_id, 'BLIND' AS what, CAST(NULL AS STRING) AS component, CAST(NULL AS STRING) AS job_id, began_at, ended_at,
  (unix_micros(ended_at) - unix_micros(began_at)) / 1e6D AS seconds, CAST(NULL AS BIGINT) AS changes, CAST(NULL AS BIGINT) AS changes_at_least
FROM gaps
WHERE began_at < ended_at
UNION ALL
SELECT
  cluster_id, 'UNREADABLE', component, job_id, began_at, ended_at, (unix_micros(ended_at) - unix_micros(began_at)) / 1e6D, NULL, NULL
FROM leadership
WHERE state = 'UNREADABLE'
UNION ALL
SELECT cluster_id, 'CHANGES', component, job_id, NULL, at, NULL, CASE WHEN exactly = at_least THEN exactly END, at_least
FROM missed LEFT ANTI JOIN sight
  ON found_later AND missed.cluster_id = sight.cluster_id AND sight.began_at < missed.at AND missed.at < sight.ended_at
WHERE at_least > 0
