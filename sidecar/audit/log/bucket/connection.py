"""How an object store is reached: by its own client for what decides, by Hadoop's connector for the rows that Spark reads and writes."""

import os
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError
from sidecar.object_store import ObjectStore

SCHEMES: Final = ("s3", "s3a", "gs", "abfs", "abfss")
_OTHER_NAMES: Final = {
    "az": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
    "azure": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
    "adl": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
    "gcs": "gs://BUCKET/PREFIX",
    "s3n": "s3://BUCKET/PREFIX",
}
"""Names that Hadoop does not know, or no longer, and how to write the URL."""
_RETRIES: Final = 8
_RETRY_FOR: Final = timedelta(minutes=1)
_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_CREDENTIALS: Final = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
"""AWS's own chain: environment, profile, web identity, container, instance."""
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_SOMEWHERE: Final = "us-east-1"
"""Stores that are not Amazon's take any region, but the client wants one."""
_DEFAULTS: Final = "core-default.xml"
"""Where Hadoop's own values come from."""


def is_object_store(url: str) -> bool:
    """Whether `url` is in an object store. Raises AuditError for a name of one that Hadoop does not know."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in _OTHER_NAMES:
        raise AuditError(f"cannot use the {scheme}:// URL that was given: write it as {_OTHER_NAMES[scheme]}")
    return scheme in SCHEMES


def connect(spark: SparkSession, url: str) -> ObjectStore:
    """The objects below `url`; Spark can read them, too. Connects to nothing.

    Raises AuditError if the URL is no good, may hold a secret, which is not shown, or if something is missing that reads it.
    """
    scheme, bucket = _checked(url)
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  Hadoop's settings have no Python API
    if scheme in {"s3", "s3a"}:
        if hadoop.getClassByNameOrNull(_S3A) is None:
            raise AuditError(
                f"cannot read {url}: Spark has no connector for S3; the audit image has it; else give Spark its jars with "
                "--conf spark.jars=… or FLINK_HA_SIDECAR_AUDIT_JARS, or let Spark fetch them with --conf spark.jars.packages=… "
                "(docs/audit.md#connector)"
            )
        _configure(hadoop, bucket)
        # With one request for a thousand objects, where Spark would ask for each folder.
        spark.conf.set("spark.sql.sources.useListFilesFileSystemList", "s3a,s3")
    try:
        return ObjectStore(url, retries=_RETRIES, retry_for=_RETRY_FOR)
    except OSError as error:
        raise AuditError(f"{url} cannot be used: {error}") from error


def _checked(url: str) -> tuple[str, str]:
    """The scheme and the bucket. Azure's URLs have the container before an @."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise AuditError("cannot use the URL of an object store that was given: it is not a URL") from error
    user = parts.netloc.rpartition("@")[0]
    if (user and (":" in user or not parts.scheme.startswith("abfs"))) or "?" in url or "#" in url:
        raise AuditError(
            f"cannot use the {parts.scheme}:// URL that was given: it must hold no user, no password, no ? and no #; "
            "credentials and options come from the environment"
        )
    if not parts.netloc:
        raise AuditError(
            f"cannot use the {parts.scheme}:// URL that was given: it names no bucket, like {parts.scheme}://bucket/prefix"
        )
    return parts.scheme, parts.netloc


def _configure(hadoop: Any, bucket: str) -> None:
    """Tell Hadoop's connector what the environment says. What Spark was given for it stays."""
    hadoop.setIfUnset("fs.s3.impl", _S3A)
    # The connector's other streams read ahead, and need further jars.
    settings = {"aws.credentials.provider": _CREDENTIALS, "input.stream.type": "classic"}
    if endpoint := _first(_ENDPOINTS):
        virtual = os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true"
        settings |= {"endpoint": endpoint, "path.style.access": str(not virtual).lower()}
    if region := _first(_REGIONS) or (endpoint and _SOMEWHERE):
        settings["endpoint.region"] = region
    for name, value in settings.items():
        sources = hadoop.getPropertySources(f"fs.s3a.{name}")
        if sources is None or [*sources] == [_DEFAULTS]:
            hadoop.set(f"fs.s3a.bucket.{bucket}.{name}", value)


def _first(variables: tuple[str, ...]) -> str | None:
    return next((value for name in variables if (value := os.environ.get(name))), None)
