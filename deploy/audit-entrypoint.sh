#!/bin/bash
# `flink-ha-sidecar …`; and, as Spark's own entrypoint does it, `executor` and `driver …`: with these, Spark on Kubernetes starts an image.
set -euo pipefail
SPARK_HOME=$(echo /opt/flink-ha-sidecar/lib/python3*/site-packages/pyspark)
s3='/opt/flink-ha-sidecar/share/flink-ha-sidecar/s3/*'
case ${1:-} in
  executor)
    options=()
    for ((n = 0; ; n++)); do
      option=SPARK_JAVA_OPT_$n
      [ -n "${!option+set}" ] || break
      options+=("${!option}")
    done
    cd "${SPARK_LOCAL_DIRS%%,*}"        # the root is read-only
    export LOCAL_DIRS=$PWD              # Hadoop's
    exec java "${options[@]}" "-Xmx$SPARK_EXECUTOR_MEMORY" "-Djava.io.tmpdir=$PWD" \
      -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_CONF_DIR:$SPARK_HOME/jars/*:$s3" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME" ;;
  driver)
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client \
      --driver-class-path "$s3" "${@:2}" ;;
  *)
    exec flink-ha-sidecar "$@" ;;
esac
