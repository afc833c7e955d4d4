#!/usr/bin/env bash
# Builds the container images with docker, podman or buildah, whichever works here. See deploy/README.md.
#
#   deploy/build-image.sh [TARGET…] [-- BUILD-OPTION…]
#
#   TARGET         sidecar, audit; both where none is named
#   BUILD-OPTION   given to the engine's build as it is: --build-arg, --secret, --platform, --volume, …
#
# From the environment (`make image IMAGE=…` sets it too):
#   IMAGE    repository to tag, default flink-ha-sidecar; the audit image is IMAGE-audit
#   TAG      default: the version in sidecar/__init__.py
#   REVISION the commit; default: that of the git repository here
#   ENGINE   docker, podman or buildah; default: the first of them that works
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'build-image: %s\n' "$*" >&2; exit "${status:-1}"; }
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' deploy/build-image.sh; }

targets=()
while [ $# -gt 0 ]; do
  case $1 in
    sidecar|audit) targets+=("$1"); shift ;;
    --) shift; break ;;
    -h|--help) usage; exit 0 ;;
    *) status=2 die "there is no target '$1'; targets are sidecar and audit, options for the engine stand after --" ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || targets=(sidecar audit)

# A docker client without its daemon is common, and builds nothing.
works() {
  command -v "$1" >/dev/null && case $1 in docker) docker info >/dev/null 2>&1 ;; esac
}
engine=${ENGINE:-}
if [ -z "$engine" ]; then
  for candidate in docker podman buildah; do
    if works "$candidate"; then engine=$candidate; break; fi
  done
  [ -n "$engine" ] || die "no docker (with its daemon), podman or buildah found; install one, on Debian: apt-get install buildah"
fi
case $engine in
  docker) build=(docker build); export DOCKER_BUILDKIT=1 ;;
  podman) build=(podman build) ;;
  buildah) build=(buildah build --layers) ;;   # the others keep layers by themselves
  *) status=2 die "ENGINE=$engine is none of docker, podman, buildah" ;;
esac

version=$(sed -nE 's/^__version__ = "(.*)"$/\1/p' sidecar/__init__.py)
[ -n "$version" ] || die "no __version__ found in sidecar/__init__.py"
revision=${REVISION:-}
if [ -z "$revision" ]; then
  revision=$(git rev-parse --verify --quiet HEAD 2>/dev/null) || revision=unknown
  [ -z "$(git status --porcelain 2>/dev/null)" ] || revision+=-dirty
fi
image=${IMAGE:-flink-ha-sidecar}

for target in "${targets[@]}"; do
  name=$image; [ "$target" = sidecar ] || name=$image-$target
  name+=:${TAG:-$version}
  printf 'build-image: %s with %s\n' "$name" "$engine" >&2
  # Spark's connector for S3 is fetched with this machine's Maven, once; where there is none, with Maven in a stage of the build.
  options=()
  if [ "$target" = audit ] && jars=$(scripts/s3-jars.sh); then options=(--build-context "s3-jars=$jars"); fi
  "${build[@]}" --target "$target" --tag "$name" "${options[@]}" \
    --build-arg VERSION="$version" --build-arg REVISION="$revision" "$@" .
done
