"""The HTTP server: health, metrics, status page and JSON API, all from the newest snapshot and the journal."""
