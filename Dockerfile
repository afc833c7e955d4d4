# Two images from one file; deploy/README.md says how to build them, also behind a mirror.
#   sidecar   what runs in a Flink pod: Python and the locked dependencies. No Java, no Spark, no compiler, no pip.
#   audit     the same command with Spark and a headless JRE, for `flink-ha-sidecar audit …`.
# What the base image lacks (python3, its venv module, a JRE) is installed with apt; what it has is used as it is.
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim

# ---- Python and a user: what every stage stands on ----
FROM ${BASE_IMAGE} AS base
USER root
# compileall is for bases whose standard library comes without .pyc (python:*-slim): under a read-only root it would be compiled
# anew at every start. Debian's comes compiled, and nothing happens.
# The user has a name because Hadoop's login, inside Spark, fails for a user id without one.
RUN set -eu; \
    if ! command -v python3 >/dev/null; then \
      apt-get update; \
      DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3; \
      rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log /var/cache/ldconfig/aux-cache; \
    fi; \
    python3 -m compileall -q "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"; \
    echo 'flink-ha-sidecar:x:65532:65532::/nonexistent:/usr/sbin/nologin' >>/etc/passwd; \
    echo 'flink-ha-sidecar:x:65532:' >>/etc/group; \
    install -d -o 65532 -g 65532 -m 0750 /var/lib/flink-ha-sidecar /var/spool/flink-ha-sidecar

# ---- pip and the build backends: beside the environment that is shipped, never in it ----
FROM base AS tools
# Where packages come from. Build arguments stay in the image's history: credentials belong into the secret pip.conf.
# Each stage that runs pip declares them again: a stage does not inherit those of the stage it starts from with every engine.
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT
# The time on what is built here, in seconds since the epoch: two builds of a release are equal (docs/project/releasing.md).
ARG SOURCE_DATE_EPOCH
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN set -eu; \
    if ! python3 -c 'import ensurepip' 2>/dev/null; then \
      apt-get update; \
      DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv; \
    fi; \
    python3 -m venv /opt/tools; \
    python3 -m venv --without-pip /opt/flink-ha-sidecar
COPY deploy/build.lock ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt \
    /opt/tools/bin/pip install --no-deps --require-hashes --only-binary :all: -r build.lock

# ---- the sidecar's dependencies ----
# Wheels first, checked against the lock; then an installation that asks nobody. pure-sasl (of kazoo) has no wheel for Python 3: its
# source archive is pinned by hash as well, and built here with the setuptools of build.lock. It is pure Python.
# Removed is what nothing imports (tests/deploy/test_image.py proves it for the locked versions): the asyncio twin of the
# Kubernetes client, 68 MB of it, and the packages' own tests.
# unchecked-hash: the files of an image do not change, so Python need not look at the sources, and no clock matters. pip would
# compile by time stamp (its --no-compile must be an option: PIP_NO_COMPILE=1 in the environment means the opposite).
FROM tools AS sidecar-env
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT
ARG SOURCE_DATE_EPOCH
COPY requirements/sidecar.lock ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt \
    /opt/tools/bin/pip wheel --no-deps --require-hashes --only-binary :all: --no-binary pure-sasl --no-build-isolation \
      --wheel-dir wheels -r sidecar.lock
RUN set -eu; \
    /opt/tools/bin/pip --python /opt/flink-ha-sidecar/bin/python install --no-index --no-deps --no-compile wheels/*.whl; \
    cd /opt/flink-ha-sidecar/lib/python3*/site-packages; \
    rm -r kubernetes/aio kazoo/tests websocket/tests certifi/tests; \
    /opt/flink-ha-sidecar/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash .

# ---- the sidecar itself: a layer of its own, so that a new release does not move the dependencies again ----
FROM tools AS app
ARG SOURCE_DATE_EPOCH
COPY pyproject.toml README.md LICENSE ./
COPY sidecar sidecar
COPY rules rules
COPY docs/how-to/troubleshooting.md docs/how-to/
COPY deploy/sbom.py ./
RUN set -eu; \
    /opt/tools/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir wheels .; \
    /opt/tools/bin/pip --python /opt/flink-ha-sidecar/bin/python install --no-index --no-deps --no-compile --prefix /app wheels/*.whl; \
    /opt/flink-ha-sidecar/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /app -p /opt/flink-ha-sidecar /app/lib

FROM base AS runtime
# Java 17 takes the encoding of files from the locale.
ENV PATH=/opt/flink-ha-sidecar/bin:$PATH LANG=C.UTF-8
VOLUME ["/var/lib/flink-ha-sidecar", "/var/spool/flink-ha-sidecar"]
EXPOSE 9250
STOPSIGNAL SIGTERM
LABEL org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.source=https://github.com/flink-ha-sidecar/flink-ha-sidecar
ENTRYPOINT ["flink-ha-sidecar"]

# ---- target: sidecar ----
FROM runtime AS sidecar
COPY --from=sidecar-env /opt/flink-ha-sidecar /opt/flink-ha-sidecar
COPY --from=app /app /opt/flink-ha-sidecar
ARG VERSION=unknown
RUN --mount=type=bind,from=app,source=/build/sbom.py,target=/tmp/sbom.py \
    /opt/flink-ha-sidecar/bin/python /tmp/sbom.py flink-ha-sidecar "${VERSION}" >/opt/flink-ha-sidecar/sbom.cdx.json
ARG REVISION=unknown
LABEL org.opencontainers.image.title=flink-ha-sidecar \
      org.opencontainers.image.description="Watches every Flink HA leader, tells people once per failover, keeps an audit log" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}
USER 65532:65532
CMD ["run"]

# ---- Spark, on top of the sidecar's dependencies ----
# pyspark too is published as a source archive only, and its build is pure Python.
FROM sidecar-env AS audit-env
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT
ARG SOURCE_DATE_EPOCH
COPY requirements/audit.lock ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt \
    /opt/tools/bin/pip wheel --no-deps --require-hashes --only-binary :all: --no-binary pure-sasl,pyspark --no-build-isolation \
      --wheel-dir audit-wheels -r audit.lock
RUN set -eu; \
    /opt/tools/bin/pip --python /opt/flink-ha-sidecar/bin/python install --no-index --no-deps --no-compile audit-wheels/*.whl; \
    cd /opt/flink-ha-sidecar/lib/python3*/site-packages; \
    rm -r py4j/tests; \
    /opt/flink-ha-sidecar/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash .

# ---- Hadoop's connector for S3, which PySpark does not have ----
# With jars that are there already, the engine does not build these two stages: --build-context s3-jars=FOLDER (deploy/build-image.sh).
FROM base AS s3-build
RUN set -eu; \
    apt-get update; \
    mkdir -p /usr/share/man/man1; \
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends maven
WORKDIR /build
COPY requirements/s3.pom.xml requirements/s3.lock requirements/
COPY scripts/s3-jars.sh scripts/
RUN --mount=type=secret,id=settings.xml,target=/etc/maven/settings.xml bash scripts/s3-jars.sh /s3-jars

FROM scratch AS s3-jars
COPY --from=s3-build /s3-jars /

# ---- target: audit ----
FROM runtime AS audit
# Slim bases have no folder for manual pages, and without it the JRE's installation fails.
ARG JRE_PACKAGE=openjdk-17-jre-headless
RUN set -eu; \
    if ! command -v java >/dev/null; then \
      apt-get update; \
      mkdir -p /usr/share/man/man1; \
      DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ${JRE_PACKAGE}; \
      rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/aux-cache; \
    fi
COPY --from=audit-env /opt/flink-ha-sidecar /opt/flink-ha-sidecar
COPY --from=s3-jars / /opt/flink-ha-sidecar/share/flink-ha-sidecar/s3/
COPY --from=app /app /opt/flink-ha-sidecar
COPY deploy/audit-entrypoint.sh /opt/flink-ha-sidecar/bin/audit-entrypoint
# Under this name, Spark takes it for a program in Python.
RUN ln -s flink-ha-sidecar /opt/flink-ha-sidecar/bin/flink-ha-sidecar.py
ARG VERSION=unknown
RUN --mount=type=bind,from=app,source=/build/sbom.py,target=/tmp/sbom.py \
    /opt/flink-ha-sidecar/bin/python /tmp/sbom.py flink-ha-sidecar-audit "${VERSION}" >/opt/flink-ha-sidecar/sbom.cdx.json
ARG REVISION=unknown
LABEL org.opencontainers.image.title=flink-ha-sidecar-audit \
      org.opencontainers.image.description="Spark over the audit log of flink-ha-sidecar: ingest, compact, sql, report, verify" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}
# Spark starts from an archive of its classes, in half the CPU time. It is valid for this Java and these jars only, so it is made here.
RUN flink-ha-sidecar audit warm-up
USER 65532:65532
ENTRYPOINT ["audit-entrypoint"]
CMD ["audit", "--help"]
