#!/usr/bin/env bash
# Fetches the jars with which Spark reads S3 (requirements/s3.pom.xml) with Maven, checks their hashes, and puts them where `audit` looks.
# Prints the folder.
#
#   s3-jars.sh [FOLDER]    [default: the user's cache]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${FLINK_HA_SIDECAR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flink-ha-sidecar}
folder=${1:-$cache/s3}

are_there() {
  [ -d "$folder" ] && [ "$(ls "$folder" | wc -l)" = "$(wc -l < "$here/requirements/s3.lock")" ] &&
    (cd "$folder" && sha256sum --check --status "$here/requirements/s3.lock")
}

if are_there; then echo "$folder"; exit; fi
command -v mvn > /dev/null || { echo "s3-jars.sh: it needs Maven (Debian: apt-get install maven)" >&2; exit 1; }
mkdir -p "$(dirname "$folder")"
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
mvn --quiet --batch-mode --file "$here/requirements/s3.pom.xml" dependency:copy-dependencies "-DoutputDirectory=$new" \
  -DexcludeGroupIds=io.netty,org.slf4j,commons-codec,commons-logging \
  -DexcludeArtifactIds=httpclient,httpcore,apache5-client,httpclient5,httpcore5,httpcore5-h2 >&2
if [ "${S3_JARS_WRITE_LOCK:-}" = 1 ]; then (cd "$new" && sha256sum -- *.jar) > "$here/requirements/s3.lock"; fi
(cd "$new" && sha256sum --check --quiet --strict "$here/requirements/s3.lock") || { echo "s3-jars.sh: what Maven fetched is not what is locked" >&2; exit 1; }
chmod 755 "$new"
rm -rf "$folder"
mv "$new" "$folder"
are_there || { echo "s3-jars.sh: there are jars that are not locked in $folder" >&2; exit 1; }
echo "$folder"
