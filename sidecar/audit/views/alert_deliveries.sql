-- What became of each alert on its way to each destination: delivered after how many attempts and how long, or given up?
--
-- One row for each time that a sidecar told something of an alert (`reason`: FIRST, GREW, RESOLVED, …) to one destination; several sidecars each
-- have their own. `outcome`: delivered, not_sent (the service's plugin sends nothing for such a message), already_told (by another sidecar: nothing
-- was sent), gave_up, or pending, of which none is known. `seconds` from queued to that end. `possible_duplicate`: an earlier attempt may have arrived.
SELECT
  cluster_id,
  observer,
  min(alert) AS alert,
  min(reason) AS reason,
  min(receiver) AS receiver,
  min(destination) AS destination,
  min(queued_at) AS queued_at,
  coalesce(min(CASE WHEN outcome IN ('delivered', 'not_sent', 'already_told', 'gave_up') THEN outcome END), 'pending') AS outcome,
  max(attempt) AS attempts,
  min(CASE WHEN outcome IN ('delivered', 'not_sent', 'already_told', 'gave_up') THEN observed_at END) AS ended_at,
  (unix_micros(min(CASE WHEN outcome IN ('delivered', 'not_sent', 'already_told', 'gave_up') THEN observed_at END)) - unix_micros(min(queued_at))) / 1e6D AS seconds,
  bool_or(possible_duplicate) AS possible_duplicate,
  max_by(detail, observed_at) AS detail
FROM notifications
WHERE outcome <> 'suppressed' AND delivery_id IS NOT NULL  -- before schema 3, nobody could tell which belong together
GROUP BY cluster_id, observer, delivery_id
