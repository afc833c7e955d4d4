-- Who took over from whom, when, for how long was no leader published, and for how long did none work?
--
-- One row for each leadership term that began after another leader's: a component (of a job: `job_id`) got another leader than the last one
-- known, to the log or to the observer. The first election of a fresh cluster is none, nor is a leader that was only out of our sight, nor one
-- that is back with its old session id. A change that happened unseen is one too: its `kind` is DISCOVERED, and it was at some time before
-- `at`. `vacant_seconds`, the time without a published leader, is null where no vacancy was seen, or not its beginning. A leader that dies stays
-- published until the store finds out: `downtime_seconds_at_least` and `downtime_seconds_at_most` bound the time without a working one, null where not known. One JobManager that fails is one row for each component, with one
-- `episode_id`; `cause` is that of the episode, null until it is over, for a job that moved by itself, and where no episodes were recorded yet.
SELECT
  term.cluster_id,
  component,
  job_id,
  at,
  term.before_address,
  term.after_address,
  term.before_session_id,
  term.after_session_id,
  term.vacant_seconds,
  term.downtime_seconds_at_least,
  term.downtime_seconds_at_most,
  kind,
  episode_id,
  cause
FROM (
  SELECT
    *,
    began_at AS at,
    address AS after_address,
    session_id AS after_session_id,
    how_it_began AS kind,
    -- A leader session id is one term.
    row_number() OVER (
      PARTITION BY cluster_id, component, job_id, session_id ORDER BY how_it_began = 'DISCOVERED', began_at
    ) AS nth
  FROM leadership
  WHERE state = 'HELD'
) AS term
LEFT JOIN episodes ON episode_id = episodes.id
WHERE nth = 1 AND NOT returned AND term.before_session_id <> term.after_session_id
