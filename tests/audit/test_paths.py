"""Which paths Hadoop can read, and which names in a folder are not anybody's data."""

import pytest

from sidecar.audit import AuditError
from sidecar.audit.log.storage import check_path, escape_pattern, is_of_file_system


@pytest.mark.parametrize(
    "url",
    [
        "audit",
        "/var/audit",
        "a [prod]/{x}",
        "file:///var/audit",
        "file:/var",
        "s3a://bucket/a",
        "gs://bucket/a",
        "abfss://container@account:443/a",
    ],
)
def test_paths_and_urls_are_accepted(url: str) -> None:
    """A colon after a scheme or a host is none of the path."""
    check_path(url)


@pytest.mark.parametrize(
    "url", ["m:1", "/var/m:1/audit", "file:///var/m:1", "s3a://bucket/m:1", "file:audit", "c:\\audit"]
)
def test_a_colon_in_a_path_is_refused(url: str) -> None:
    """Hadoop takes what stands before it for a scheme, in some places and not in others."""
    with pytest.raises(
        AuditError, match=r"^cannot use \S+: there is a colon in its path, which Hadoop cannot read; use a folder"
    ):
        check_path(url)


def test_a_pattern_matches_just_its_path() -> None:
    """Each character that means something in a pattern is escaped."""
    assert escape_pattern(r"/a [b]/{c,d}/*?\e") == r"/a \[b\]/\{c,d\}/\*\?\\e"


@pytest.mark.parametrize(
    "name", ["lost+found", ".snapshot", "@eaDir", ".nfs000000000000001c00000001", ".Trash-1000", "$RECYCLE.BIN"]
)
def test_what_a_file_system_makes_is_known(name: str) -> None:
    """On a fresh ext4 volume, and on the appliances that people store logs on."""
    assert is_of_file_system(name)


@pytest.mark.parametrize(
    "name", ["transitions", "_staging", "jm-0", "lost", "snapshot", ".hidden", "0001-0002.jsonl.gz"]
)
def test_data_is_not_taken_for_it(name: str) -> None:
    """Not everything that is hidden, either."""
    assert not is_of_file_system(name)
