#!/bin/sh
# jobmanager ADDRESS | taskmanager ADDRESS: what Flink's official image starts, in small JVMs that start fast.
set -eu
packages=
for package in java.lang java.lang.reflect java.net java.io java.nio java.text java.time java.util java.util.concurrent \
  java.util.concurrent.atomic java.util.concurrent.locks sun.nio.ch; do packages="$packages --add-opens=java.base/$package=ALL-UNNAMED"; done
run() { # run MEGABYTES CLASS ARGUMENT…
  heap=$1; shift
  # shellcheck disable=SC2086
  exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx"${heap}m" -Dlog4j.configurationFile=/opt/flink/conf/log4j-console.properties \
    $packages -cp '/opt/flink/lib/*' "$@"
}
case $1 in
  jobmanager) run 384 org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint --configDir /opt/flink/conf \
    -Djobmanager.rpc.address="$2" -Drest.address="$2" ;;
  taskmanager) run 384 org.apache.flink.runtime.taskexecutor.TaskManagerRunner --configDir /opt/flink/conf -Dtaskmanager.host="$2" ;;
  *) exec "$@" ;;
esac
