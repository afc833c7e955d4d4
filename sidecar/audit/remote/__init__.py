"""An audit log or a spool in an object store (`s3://`, `gs://`, `az://`), without Hadoop's packages for it.

Spark works on a copy on the local disk, which has everything that the audit relies on: locks, atomic renames, a swap of folders. What
changed there is then published: new objects complete and only where there is none, one writer at a time (docs/adr/0032-object-stores.md).

- `commands`: what `audit …` calls; takes any URL.
- `audit_copy`: the local copy of an audit log, read or written. `local_copy` downloads, `publication` uploads.
- `contents`: what a listing means, also in the middle of a replacement. `writer_lock`: one writer, fenced.
- `spool_copy`: the new segments of a spool.
"""
