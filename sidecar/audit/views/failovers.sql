-- Who took over from whom, when, and for how long did nobody lead?
--
-- One row for each leadership term that began after another leader's: a component (of a job: `job_id`) got another leader than the last one
-- known. The first election of a fresh cluster is none, nor is a leader that was only out of our sight. A change that happened unseen is
-- one too: its `kind` is DISCOVERED, and it was at some time before `at`. `vacant_seconds` is null where no vacancy was seen.
SELECT
  cluster_id,
  component,
  job_id,
  observed_at AS at,
  last_known_address AS before_address,
  after_address,
  last_known_session_id AS before_session_id,
  after_session_id,
  vacant_seconds,
  kind
FROM transitions
WHERE kind IN ('GRANTED', 'CHANGED', 'DISCOVERED')
  AND after_session_id IS NOT NULL
  AND last_known_session_id IS NOT NULL
  AND NOT same_leader
-- A leader session id is one term. Of several observers, the one that saw it begin knows best.
QUALIFY 1 = row_number() OVER (
  PARTITION BY cluster_id, component, job_id, after_session_id
  ORDER BY kind = 'DISCOVERED', observed_at, observer
)
