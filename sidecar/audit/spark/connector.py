"""The jars of Hadoop's connector for S3, which PySpark does not have. They are needed for logs and spools in object stores only."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sidecar.audit.audit_error import AuditError
from sidecar.runtime.folders import cache_folder

_VARIABLE: Final = "FLINK_HA_SIDECAR_AUDIT_JARS"


def connector_jars() -> Sequence[Path]:
    """All jars in the folder that FLINK_HA_SIDECAR_AUDIT_JARS names; else beside this Python, as in the audit image, or in the cache.

    Raises AuditError if the folder that is named has none.
    """
    path = os.environ.get(_VARIABLE)
    folders = [Path(path)] if path else [Path(sys.prefix, "share", "flink-ha-sidecar", "s3"), cache_folder() / "s3"]
    jars_there = next((jars for folder in folders if (jars := sorted(folder.glob("*.jar")))), [])
    if path and not jars_there:
        raise AuditError(f"cannot start Spark: {_VARIABLE} names {path}, where there are no jars")
    return jars_there
