"""How an object store is reached: by its own client for what decides, by Hadoop's connector for the rows that Spark reads and writes.

Hadoop's settings are the only truth; the environment says what they leave open. So both clients speak to the same store as the same user.
"""

import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from py4j.java_gateway import is_instance_of
from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError
from sidecar.net.object_store import ENDPOINTS, ObjectStore

SCHEMES: Final = ("s3", "s3a", "gs", "abfs", "abfss")
"""`s3a` is another name of `s3`."""
_OTHER_NAMES: Final = {
    "az": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
    "azure": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
    "adl": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
    "gcs": "gs://BUCKET/PREFIX",
    "s3n": "s3://BUCKET/PREFIX",
}
"""Names that Hadoop does not know, or no longer, and how to write the URL."""
_RETRIES: Final = 12
_RETRY_FOR: Final = timedelta(minutes=1)
_FRESH_FOR: Final = timedelta(minutes=5)
"""For how long credentials are used before Amazon's chain, which renews them in time, is asked again."""
_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_RELEASE: Final = "META-INF/maven/org.apache.hadoop/hadoop-aws/pom.properties"
_SESSION: Final = "software.amazon.awssdk.auth.credentials.AwsSessionCredentials"
_SETTINGS: Final = {
    # Amazon's own chain: environment, web identity, profile, container, instance.
    "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    # The connector's other streams read ahead, and need further jars.
    "input.stream.type": "classic",
    # It would ask a store that is too busy for longer than anybody waits.
    "retry.throttle.limit": "8",
}
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_SOMEWHERE: Final = "us-east-1"
"""Stores that are not Amazon's take any region, but the client wants one."""
_DEFAULTS: Final = "core-default.xml"
"""Where Hadoop's own values come from."""
_HOW: Final = (
    "the audit image has it; else name a folder with the jars in FLINK_HA_SIDECAR_AUDIT_JARS (scripts/s3-jars.sh makes one), "
    "or have Spark fetch them with --conf spark.jars.packages=… (docs/explanation/audit.md#object-stores)"
)


def is_object_store(url: str) -> bool:
    """Whether `url` is in an object store. Raises AuditError for a name of one that Hadoop does not know."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in _OTHER_NAMES:
        raise AuditError(f"cannot use the {scheme}:// URL that was given: write it as {_OTHER_NAMES[scheme]}")
    return scheme in SCHEMES


def prepare(spark: SparkSession, url: str) -> None:
    """Have Spark read `url`. Connects to nothing.

    Raises AuditError if the URL is no good, may hold a secret, which is not shown, or if something is missing that reads it.
    """
    scheme, bucket = _checked(url)
    if scheme == "s3":
        hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  Hadoop's settings have no Python API
        _check_connector(spark, hadoop, url)
        _configure(hadoop, bucket)
        # With one request for a thousand objects, where Spark would ask for each folder.
        spark.conf.set("spark.sql.sources.useListFilesFileSystemList", "s3")


def connect(spark: SparkSession, url: str, connector: Any) -> ObjectStore:
    """The objects below `url`, which Spark reads by this file system of Hadoop's. Connects to nothing. Raises AuditError."""
    scheme, bucket = _checked(url)
    options = (
        _options(connector.getConf(), bucket) | {"credential_provider": _credentials(spark, connector)}
        if scheme == "s3"
        else {}
    )
    try:
        return ObjectStore(url, retries=_RETRIES, retry_for=_RETRY_FOR, **options)
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


def _check_connector(spark: SparkSession, hadoop: Any, url: str) -> None:
    """Wrong jars are found here: a class that is missing in a thread of Spark's makes it wait for ever."""
    hadoop.setIfUnset("fs.s3.impl", _S3A)
    if (other := hadoop.get("fs.s3.impl")) != _S3A:
        raise AuditError(
            f"cannot read {url}: Spark reads s3:// by {other}; give it --conf spark.hadoop.fs.s3.impl={_S3A}"
        )
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  Java has no Python API
    file = hadoop.getClassLoader().getResourceAsStream(_RELEASE)
    if file is None:
        raise AuditError(f"cannot read {url}: Spark has no connector for S3; {_HOW}")
    properties = jvm.java.util.Properties()
    with closing(file):
        properties.load(file)
    release, wanted = properties.getProperty("version"), jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    if release != wanted:
        raise AuditError(
            f"cannot read {url}: Spark has Hadoop {wanted}, and its connector for S3 is hadoop-aws {release}; {_HOW}"
        )


def _configure(hadoop: Any, bucket: str) -> None:
    """Tell Hadoop's connector what the environment says. What Spark was given for it stays."""
    settings = dict(_SETTINGS)
    if endpoint := _first(ENDPOINTS):
        virtual = os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true"
        settings |= {"endpoint": endpoint, "path.style.access": str(not virtual).lower()}
    if region := _first(_REGIONS) or (endpoint and _SOMEWHERE):
        settings["endpoint.region"] = region
    for name, value in settings.items():
        sources = hadoop.getPropertySources(f"fs.s3a.{name}")
        if sources is None or [*sources] == [_DEFAULTS]:
            hadoop.set(f"fs.s3a.bucket.{bucket}.{name}", value)


def _options(hadoop: Any, bucket: str) -> dict[str, Any]:
    """Hadoop's settings of the bucket, for the store's own client."""

    def setting(name: str) -> str:
        return str(hadoop.get(f"fs.s3a.bucket.{bucket}.{name}") or hadoop.get(f"fs.s3a.{name}") or "")

    options: dict[str, Any] = {"virtual_hosted_style_request": setting("path.style.access") != "true"}
    if endpoint := setting("endpoint"):
        options["endpoint"] = endpoint if "://" in endpoint else f"https://{endpoint}"
    if region := setting("endpoint.region"):
        options["region"] = region
    return options


def _credentials(spark: SparkSession, connector: Any) -> Callable[[], dict[str, Any]]:
    """Asks Hadoop's connector for its credentials."""
    chain = connector.getS3AInternals().shareCredentials("flink-ha-sidecar")
    gateway = spark.sparkContext._gateway  # noqa: SLF001  Java has no Python API

    def ask() -> dict[str, Any]:
        credentials = chain.resolveCredentials()
        temporary = is_instance_of(gateway, credentials, _SESSION)
        return {
            "access_key_id": credentials.accessKeyId(),
            "secret_access_key": credentials.secretAccessKey(),
            "token": credentials.sessionToken() if temporary else None,
            "expires_at": datetime.now(UTC) + _FRESH_FOR,
        }

    return ask


def _first(variables: tuple[str, ...]) -> str | None:
    return next((value for name in variables if (value := os.environ.get(name))), None)
