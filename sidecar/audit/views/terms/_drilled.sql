-- Which failovers were those of drills?
--
-- By the record of the drill's end, of any observer. A failover that is not known to be the drill's is not in it.
SELECT episode_id FROM drills WHERE phase = 'ended' AND episode_id IS NOT NULL GROUP BY episode_id
