"""Paths as Hadoop reads them, and the names that file systems put into folders."""

import re
from typing import Final

from sidecar.audit.audit_error import AuditError

_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?(?=/|$)")
"""What begins a URL, with its host and port."""
_NO_DATA: Final = frozenset(
    {
        *("lost+found", ".snapshot", ".snapshots", ".zfs", ".DS_Store", ".lustre", ".glusterfs", ".trashcan"),
        *("@eaDir", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot", ".@__thumb"),
        *("$RECYCLE.BIN", "System Volume Information", "aquota.user", "aquota.group", "quota.user", "quota.group"),
    }
)
_NO_DATA_PREFIXES: Final = (".nfs", ".fuse_hidden", ".Trash")


def is_of_file_system(name: str) -> bool:
    """Whether a file system, or the machine that it is on, makes files or folders of this name by itself, as on a fresh volume."""
    return name in _NO_DATA or name.startswith(_NO_DATA_PREFIXES)


def escape_pattern(path: str) -> str:
    """A pattern of Hadoop's that matches just this path. Spark takes each path that it reads for a pattern."""
    return _PATTERN.sub(r"\\\1", path)


def check_path(url: str) -> None:
    """Raise AuditError when Hadoop cannot read what is at this path or URL, whatever it is."""
    begin = _SCHEME.match(url)
    if ":" in url[begin.end() if begin else 0 :]:
        raise AuditError(
            f"cannot use {url}: there is a colon in its path, which Hadoop cannot read; use a folder of another name"
        )
