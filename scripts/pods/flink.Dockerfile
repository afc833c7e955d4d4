# Two images: Flink from its jars, started as the official image does, by an argument and as user 9999; and what a pod's sandbox runs.
# The build's context has the jars in lib/.
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS pause
USER 65532:65532
ENTRYPOINT ["sleep", "infinity"]

FROM ${BASE_IMAGE} AS flink
RUN set -eu; \
    apt-get update; \
    mkdir -p /usr/share/man/man1; \
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends openjdk-17-jre-headless; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log; \
    groupadd -g 9999 flink; \
    useradd -u 9999 -g 9999 -d /opt/flink flink
COPY lib /opt/flink/lib
COPY docker-entrypoint.sh /docker-entrypoint.sh
RUN set -eu; \
    install -d -o 9999 -g 9999 /opt/flink/conf /opt/flink/log; \
    chmod 0755 /docker-entrypoint.sh
USER 9999:9999
WORKDIR /opt/flink
ENTRYPOINT ["/docker-entrypoint.sh"]
