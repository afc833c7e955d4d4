#!/bin/sh
# Builds never-ending-job.jar: build.sh FLINK_LIB_FOLDER JAR   (needs javac and jar of JDK 17 or newer)
# The kept jar was compiled against Flink 1.13.6; against 1.20.5 and 2.3.0, and by the javac of JDK 25, it comes out the same.
# Dates, manifest and compression are fixed, so that the same classes always give the same bytes.
set -eu
source=$(cd "$(dirname "$0")" && pwd)
library=$1
jar=$2
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
javac --release 8 -Xlint:-options -g:none -cp "$library/*" -d "$build" "$source/NeverEnding.java"
mkdir "$build/META-INF"
printf 'Manifest-Version: 1.0\r\nMain-Class: NeverEnding\r\n\r\n' > "$build/META-INF/MANIFEST.MF"
jar --create --file "$jar" --no-manifest --no-compress --date=2026-01-01T00:00:00Z \
  -C "$build" META-INF/MANIFEST.MF -C "$build" NeverEnding.class -C "$build" 'NeverEnding$SlowlyNothing.class'
