"""The images, built by the project's own script, and started without a container engine.

Built: by buildah with chroot isolation, on a base from debootstrap, in a storage of its own in the user's cache. Started: in a mount
namespace with the image's root bound read-only, as the image's own user, without a capability. A container runtime adds to that network,
process and user namespaces, cgroups and seccomp.
"""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sidecar.runtime.folders import cache_folder
from tests import ROOT

TOOLS: Final = ("buildah", "debootstrap", "unshare", "setpriv", "chroot")
TARGETS: Final = ("sidecar", "audit")
BUILD_SECONDS: Final = 1500.0
"""Nothing in the cache, and a slow network. With a warm cache it is a minute."""
_NAME: Final = "localhost/flink-ha-sidecar"
_COMMAND_SECONDS: Final = 120.0
# As a container runtime does it, with the volumes of the manifests: the host's name can be resolved, and the root is read-only.
_START: Final = r"""
set -eu
mount --bind "$0" "$0"
printf '127.0.0.1 localhost %s\n' "$(uname -n)" >"$0/etc/hosts"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"
for volume in /var/lib/flink-ha-sidecar /var/spool/flink-ha-sidecar; do mount -t tmpfs -o "uid=$1,gid=$2,mode=0750" tmpfs "$0$volume"; done
printf %s "$3" | while IFS=: read -r folder path options; do
  mkdir -p "$0$path"
  mount --bind "$folder" "$0$path"
  mount -o "remount,bind,$options" "$0$path"
done
mount -o remount,bind,ro "$0"
root=$0 uid=$1 gid=$2
shift 3
exec chroot "$root" /usr/bin/setpriv --reuid "$uid" --regid "$gid" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def missing() -> list[str]:
    """What this machine lacks to build and start images."""
    lacks = [tool for tool in TOOLS if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None]
    return [*lacks, *(["root"] if os.geteuid() else [])]


def build_once() -> None:
    """Build both where there are none yet, so that the tests find what takes minutes in the cache. Nothing where none can be built."""
    if not missing():
        with tempfile.TemporaryDirectory() as folder:
            builder = Builder(Path(folder))
            if not builder.buildah("images", "--quiet", "--filter", f"reference={_NAME}-audit"):
                builder.build()


class Image:
    """One built image."""

    def __init__(self, builder: "Builder", target: str) -> None:
        self._builder = builder
        self.name = f"{_NAME}:{builder.tag}" if target == "sidecar" else f"{_NAME}-{target}:{builder.tag}"
        image = json.loads(builder.buildah("inspect", "--type", "image", self.name))
        self.config: dict[str, Any] = image["OCIv1"]["config"]
        (listed,) = json.loads(builder.buildah("images", "--json", self.name))
        self.size: str = listed["size"]
        """Unpacked, as buildah prints it."""

    @contextmanager
    def root(self) -> Iterator["RootFolder"]:
        """Its files, mounted."""
        container = self._builder.buildah("from", "--pull-never", self.name).strip()
        try:
            yield RootFolder(Path(self._builder.buildah("mount", container).strip()), self.config)
        finally:
            self._builder.buildah("rm", container)


class RootFolder:
    """The files of an image, in which its processes are started."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self._config = config

    def start(
        self,
        *arguments: str,
        volumes: Mapping[str, tuple[Path, str]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start what the image starts with these arguments. The process is the command itself: signals reach it.

        `volumes`: by their paths in the image, folders and `rw` or `ro`. `environment` is added to the image's.
        """
        command = [*self._config["Entrypoint"], *(arguments or self._config["Cmd"])]
        return self._start(command, volumes, environment)

    def run(self, *command: str, seconds: float = _COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run any command in it to its end."""
        with self._start(command) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def has(self, program: str) -> bool:
        """Whether there is such a program in the PATH of the image."""
        return self.run("sh", "-c", f"command -v {shlex.quote(program)}").returncode == 0

    def _start(
        self,
        command: Sequence[str],
        volumes: Mapping[str, tuple[Path, str]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        uid, gid = self._config["User"].split(":")
        binds = "".join(f"{folder}:{path}:{options}\n" for path, (folder, options) in (volumes or {}).items())
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _START, str(self.folder), uid, gid, binds, *command],  # noqa: S607  the system's
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**dict(variable.split("=", 1) for variable in self._config["Env"]), **(environment or {})},
        )


class Builder:
    """Builds images. `folder` is for what this build alone needs."""

    def __init__(self, folder: Path, tag: str = "tests") -> None:
        self.tag = tag
        store = cache_folder() / "images"
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        storage = folder / "storage.conf"
        storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{store}"\nrunroot = "{folder / "run"}"\n')
        self._folder = folder
        self._lock = store.with_name("images.lock")
        self._environment = os.environ | {
            "CONTAINERS_STORAGE_CONF": str(storage),
            "BUILDAH_ISOLATION": "chroot",
            "ENGINE": "buildah",
            "IMAGE": _NAME,
            "TAG": tag,
        }

    def build(self, *targets: str) -> dict[str, Image]:
        """These images, or both, by name of target; AssertionError with the end of the log."""
        options = ["--build-arg", f"BASE_IMAGE={self.base()}", *self._secrets()]
        built = targets or TARGETS
        with self.alone():
            self._run(str(ROOT / "deploy" / "build-image.sh"), *built, "--", *options, seconds=BUILD_SECONDS)
        return {target: Image(self, target) for target in built}

    def base(self) -> str:
        """The name of the base image, made where there is none."""
        with self.alone():
            made = self._run(str(ROOT / "scripts" / "build-base-image.sh"), seconds=BUILD_SECONDS)
        return made.strip().splitlines()[-1]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Whoever builds in this storage meanwhile waits: buildah unmounts what another build works in."""
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def buildah(self, *arguments: str, seconds: float = _COMMAND_SECONDS) -> str:
        """What a command of buildah prints."""
        return self._run("buildah", *arguments, seconds=seconds)

    def _secrets(self) -> list[str]:
        """Where this machine's pip finds packages, as deploy/README.md says for a build behind a mirror."""
        listed = self._run(sys.executable, "-m", "pip", "config", "list")
        settings = dict(line.split("=", 1) for line in listed.splitlines())
        values = {key.rpartition(".")[2]: value.strip("'\"") for key, value in settings.items()}
        lines = [f"{key} = {values[key]}" for key in ("index-url", "proxy", "timeout", "trusted-host") if key in values]
        secrets = []
        if certificates := values.get("cert"):
            lines.append("cert = /run/secrets/ca.crt")
            secrets += ["--secret", f"id=ca.crt,src={certificates}"]
        config = self._folder / "pip.conf"
        config.write_text("\n".join(["[global]", *lines, ""]))
        return [*secrets, "--secret", f"id=pip.conf,src={config}"]

    def _run(self, *command: str, seconds: float = _COMMAND_SECONDS) -> str:
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        log = (done.stdout + done.stderr)[-4000:]
        assert done.returncode == 0, f"{shlex.join(command)} ended with {done.returncode}:\n{log}"
        return done.stdout
