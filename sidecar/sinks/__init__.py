"""Effects go out: notifications, events, metrics, evidence, pictures, records, and the documents that sidecars share."""
