"""What a pod loses when it is deleted is known from what the kernel shows its containers."""

from pathlib import Path

import pytest

from sidecar.runtime.folders import MOUNTS, empty_dir

POD = "/var/lib/kubelet/pods/0d4e3f0c-6a53-4d7c-9d0b-1c4a5b6f7e80/volumes"
IN_A_POD = f"""\
612 520 0:61 / / ro,relatime - overlay overlay ro,lowerdir=/l,upperdir=/u,workdir=/w
630 612 254:1 {POD}/kubernetes.io~empty-dir/ha-sidecar-spool /var/spool/flink-ha-sidecar rw,relatime - ext4 /dev/vda1 rw
631 612 254:1 {POD}/kubernetes.io~configmap/flink-config /opt/flink/conf ro,relatime - ext4 /dev/vda1 rw
632 612 0:70 / /claimed rw,relatime - nfs4 store:/exports/spool rw
633 630 0:70 /a /var/spool/flink-ha-sidecar/claimed rw,relatime - nfs4 store:/exports/spool rw
634 612 254:1 {POD}/kubernetes.io~empty-dir/with\\040blank /with\\040blank rw,relatime - ext4 /dev/vda1 rw
garbage
"""


@pytest.mark.parametrize(
    ("folder", "volume"),
    [
        ("/var/spool/flink-ha-sidecar", "ha-sidecar-spool"),
        ("/var/spool/flink-ha-sidecar/jm-0", "ha-sidecar-spool"),
        ("/var/spool/flink-ha-sidecar/claimed", None),
        ("/var/spool/flink-ha-sidecar-2", None),
        ("/opt/flink/conf", None),
        ("/claimed", None),
        ("/with blank/x", "with blank"),
    ],
)
def test_an_empty_dir_is_recognised(folder: str, volume: str | None, tmp_path: Path) -> None:
    """Of volumes that are mounted in each other, the innermost one counts."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(IN_A_POD)
    assert empty_dir(Path(folder), mounts) == volume


def test_outside_of_a_pod_there_is_none(tmp_path: Path) -> None:
    """Nor where the kernel does not show it."""
    assert empty_dir(tmp_path) is None
    assert empty_dir(tmp_path, tmp_path / "absent") is None
    assert MOUNTS.exists()
