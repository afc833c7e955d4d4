-- From when until when is the coverage of each cluster known?
--
-- One row for each cluster. An observer records its coverage when it changes, and at least once an hour. So the time after `until` is not known
-- yet: it is neither observed nor unobserved, and in no other figure. Records of other observers may still arrive, and reduce the unobserved time.
SELECT cluster_id, min(`from`) AS since, max(`to`) AS until
FROM coverage
WHERE `from` < `to`
GROUP BY cluster_id
