-- Until when is the time of each cluster counted?
SELECT cluster_id, until FROM known_until
