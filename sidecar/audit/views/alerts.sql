---- alert_deliveries
-- Was each notification delivered to each destination, after how many attempts and how long, or given up?
--
-- One row for each notification of an alert to one destination, by one sidecar. A condition on `event_date` leaves out what is pending.
--
-- * cluster_id, observer, alert, reason, receiver, destination, service, queued_at: as in notifications
-- * outcome: `delivered`, `not_sent` (the service sends nothing for such a message), `already_told` (another sidecar has notified), `gave_up`,
--   `superseded` (the scheduled close of an incident that goes on), or `pending`: no outcome is known. Of a `RESEND`, which is recorded only if it did not arrive: why.
-- * attempts: How many attempts were made.
-- * ended_at: When the outcome was known. Null: `pending`.
-- * seconds: From `queued_at` to `ended_at`. Null: `pending`.
-- * possible_duplicate, detail, episode_id: as in notifications
-- * event_date: The UTC date of `ended_at`. Null: `pending`.
WITH attempts AS (
  SELECT *, outcome IN ('delivered', 'not_sent', 'already_told', 'gave_up', 'superseded') OR reason = 'RESEND' AS is_final
  FROM notifications
  WHERE outcome <> 'suppressed'
)
-- The last record of a delivery has all that is known of it.
SELECT
  cluster_id, observer, alert, reason, receiver, destination, service, queued_at, outcome, attempt AS attempts, observed_at AS ended_at,
  (unix_micros(observed_at) - unix_micros(queued_at)) / 1e6D AS seconds, possible_duplicate, detail, episode_id, event_date
FROM attempts
WHERE is_final
UNION ALL
SELECT
  cluster_id, observer, min(alert), min(reason), min(receiver), min(destination), min(service), min(queued_at), 'pending', max(attempt),
  NULL, NULL, bool_or(possible_duplicate),
  max_by(detail, observed_at),
  min(episode_id), NULL
FROM attempts
GROUP BY cluster_id, observer, delivery_id
HAVING NOT bool_or(is_final)
