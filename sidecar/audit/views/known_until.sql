-- From when until when is it known of each cluster whether anybody could see its store?
--
-- One row for each cluster. An observer records whether it could see when that changes, and at least once an hour. So of the time after `until`
-- nobody knows yet: it is neither seen nor unobserved, and in no other figure. It is not known either while observers' records are on their way:
-- what another observer saw meanwhile may still come, and make less of what is unobserved.
SELECT cluster_id, min(`from`) AS since, max(`to`) AS until
FROM coverage
WHERE `from` < `to`
GROUP BY cluster_id
