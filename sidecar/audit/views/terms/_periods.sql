-- Which periods did each observer cover?
--
-- The coverage records, without those of a clock that jumped: a period ended within a day of its record, and a period of sight counts for at most a
-- day before it (an observer records at least once an hour). So the periods of a day are found in three dates.
SELECT
  cluster_id,
  observer,
  state,
  CASE
    WHEN state = 'seeing' THEN greatest(began_at, timestamp_micros(unix_micros(observed_at) - 86400000000))
    ELSE began_at
  END AS began_at,
  ended_at,
  event_date
FROM _coverage
WHERE began_at < ended_at AND abs(unix_micros(observed_at) - unix_micros(ended_at)) <= 86400000000
