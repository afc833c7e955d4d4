"""Archives that are equal whenever and wherever they are made: fixed order, times, modes and owners."""

import gzip
import hashlib
import tarfile
from pathlib import Path


def pack(folder: Path, archive: Path, epoch: int) -> None:
    """The contents of a folder as a tar file, compressed where the name ends in `gz`."""
    with archive.open("wb") as file:
        if archive.suffix.endswith("gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as compressed:
                _tar(folder, compressed, epoch)
        else:
            _tar(folder, file, epoch)


def _tar(folder: Path, file: object, epoch: int) -> None:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        executable = entry.isdir() or entry.mode & 0o100
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime, entry.mode = epoch, 0o755 if executable else 0o644
        return entry

    with tarfile.open(mode="w", fileobj=file, format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=plain)


def checksums(folder: Path) -> str:
    """A line for each file below the folder, as `sha256sum --check` reads them."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.as_posix())
    return "".join(f"{_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
