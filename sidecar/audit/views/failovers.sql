-- Who took over from whom, when, and for how long did nobody lead?
--
-- One row for each leadership term that began after another leader's: a component (of a job: `job_id`) got another leader than the last one
-- known, to the log or to the observer. The first election of a fresh cluster is none, nor is a leader that was only out of our sight, nor one
-- that is back with its old session id. A change that happened unseen is one too: its `kind` is DISCOVERED, and it was at some time before
-- `at`. `vacant_seconds` is null where no vacancy was seen, or not its beginning. One JobManager that fails is one row for each component.
SELECT
  cluster_id, component, job_id, at, before_address, after_address, before_session_id, after_session_id, vacant_seconds, kind
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
)
WHERE nth = 1 AND NOT returned AND before_session_id <> after_session_id
