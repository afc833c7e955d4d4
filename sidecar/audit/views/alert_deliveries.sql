-- Was each notification delivered to each destination, after how many attempts and how long, or given up?
--
-- One row for each notification of an alert (`reason`: FIRST, GREW, RESOLVED, …) to one destination, by one sidecar. `outcome`: delivered,
-- not_sent (the service's plugin sends nothing for such a message), already_told (another sidecar has notified: nothing was sent), gave_up, or
-- pending: no outcome is known. `seconds` from queued to the outcome. `possible_duplicate`: an earlier attempt may have arrived.
WITH deliveries AS (
  SELECT *, outcome IN ('delivered', 'not_sent', 'already_told', 'gave_up') AS is_final
  FROM notifications
  WHERE outcome <> 'suppressed' AND delivery_id IS NOT NULL  -- before schema 3, records of one delivery cannot be matched
)
SELECT
  cluster_id,
  observer,
  min(alert) AS alert,
  min(reason) AS reason,
  min(receiver) AS receiver,
  min(destination) AS destination,
  min(queued_at) AS queued_at,
  coalesce(min(outcome) FILTER (WHERE is_final), 'pending') AS outcome,
  max(attempt) AS attempts,
  min(observed_at) FILTER (WHERE is_final) AS ended_at,
  (unix_micros(min(observed_at) FILTER (WHERE is_final)) - unix_micros(min(queued_at))) / 1e6D AS seconds,
  bool_or(possible_duplicate) AS possible_duplicate,
  max_by(detail, observed_at) AS detail
FROM deliveries
GROUP BY cluster_id, observer, delivery_id
