#!/usr/bin/env bash
# Makes the virtual environment given as the first argument and sees to it that there is a Java for Flink, ZooKeeper and Spark.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
as_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_install() {
  say "installing $*"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null \
    || die "apt-get could not install $*; install it and run this again"
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  || die "Python 3.11 or newer is needed as '$python'; install it, or name another: make setup PYTHON=/path/to/python3.12"

"$python" -c 'import venv, ensurepip' 2>/dev/null \
  || { as_root && apt_install python3-venv; } \
  || die "Python's venv module is missing; run: apt-get install python3-venv"

java_major() { "$1" -version 2>&1 | sed -nE '1s/.*version "([0-9]+).*/\1/p'; }
java=${JAVA_HOME:+$JAVA_HOME/bin/java}
java=${java:-java}
major=$(java_major "$java" 2>/dev/null || true)
if [ -z "$major" ] || [ "$major" -lt 17 ]; then
  as_root || die "Java 17 or newer is needed (found: ${major:-none}); run: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
  apt_install openjdk-17-jdk-headless
fi
# One test rebuilds the lab's job. Where nothing may be skipped, there has to be a compiler.
if [ -n "${FLINK_HA_SIDECAR_NO_SKIPS:-}" ] && ! command -v javac >/dev/null; then
  as_root || die "javac is needed to run every test; run: apt-get install openjdk-17-jdk-headless"
  apt_install openjdk-17-jdk-headless
fi
if [ -n "${FLINK_HA_SIDECAR_NO_SKIPS:-}" ] && ! PATH=$PATH:/sbin:/usr/sbin command -v tc >/dev/null; then
  as_root || die "tc is needed to run every test (it drops packets); run: apt-get install iproute2"
  apt_install iproute2
fi
if [ -n "${FLINK_HA_SIDECAR_NO_SKIPS:-}" ] && ! command -v mvn >/dev/null; then
  as_root || die "Maven is needed to run every test (it fetches Spark's connector for S3); run: apt-get install maven"
  apt_install maven
fi
if [ -n "${FLINK_HA_SIDECAR_NO_SKIPS:-}" ] && ! command -v chromium >/dev/null; then
  as_root || die "chromium is needed to run every test (it opens the audit report); run: apt-get install chromium"
  apt_install chromium
fi
if [ -n "${FLINK_HA_SIDECAR_NO_SKIPS:-}" ] && ! { command -v buildah && PATH=$PATH:/usr/sbin command -v debootstrap; } >/dev/null; then
  as_root || die "buildah and debootstrap are needed to run every test (they build the images); run: apt-get install buildah debootstrap"
  apt_install buildah debootstrap
fi

[ -x "$venv/bin/python" ] || { say "making $venv"; "$python" -m venv "$venv"; }
say "installing the locked dependencies (the first time: some 600 MB, most of it Spark)"
# Without dependencies: the lock names all of them, and pip would look at newer versions for one that is also named with an extra.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --no-compile -r requirements/dev.lock
"$venv/bin/python" -m pip check --disable-pip-version-check >/dev/null || die "requirements/dev.lock is incomplete: see pip check; run make lock"
# Bytecode is written when a module is first imported: most of what is installed never is.
# The project itself, without asking anybody for anything: its build backend is in the lock.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
say "ready: $venv"
