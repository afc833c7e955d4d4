"""The audit on Spark's executors in pods: the job of `deploy/audit/on-kubernetes`, with spool and log in a bucket."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.audit.spooling import ids, ids_seen_without_spark
from tests.kit.pods.audit_jobs import ACCOUNT, JOB_SECONDS, AuditJobs
from tests.kit.pods.cluster import reachable
from tests.kit.pods.node import sandbox
from tests.kit.s3_server import S3Server
from tests.kit.serving import serving
from tests.kit.waiting import wait_for
from tests.pods.conftest import Report


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditJobs]:
    folder = tmp_path_factory.mktemp("spark")
    with (
        serving(S3Server(folder)) as server,
        reachable(f"127.0.0.1:{server.port}") as endpoint,
        AuditJobs(folder, server.bucket, endpoint) as jobs,
    ):
        yield jobs


def check(jobs: AuditJobs, name: str, report: Report, began: float) -> None:
    """The job ends well; each id is there once; no executor and no staged file is left."""
    wait_for(f"the end of {name}", lambda: jobs.is_done(name), JOB_SECONDS)
    seconds = time.monotonic() - began
    assert ids_seen_without_spark(jobs.bucket / "audit", "transitions") == ids(jobs.records)
    assert not (jobs.bucket / "audit" / "_staging").exists()
    wait_for("the end of all executors", lambda: not jobs.executors())
    memory = ", ".join(f"{kind} {peak / 2**20:.0f} MiB" for kind, peak in sorted(jobs.peaks.items()))
    report(f"Spark on Kubernetes: {name}", f"{len(jobs.records)} records, each once; {seconds:.0f} s; at most {memory}")


def test_an_executor_is_killed(jobs: AuditJobs, report: Report) -> None:
    """While it ingests: another one takes over."""
    jobs.fill()
    began = time.monotonic()
    jobs.start("executor-killed")
    jobs.await_rows()
    jobs.kill(jobs.executors()[0])
    check(jobs, "executor-killed", report, began)


def test_the_driver_is_killed(jobs: AuditJobs, report: Report) -> None:
    """While it ingests: the job's next pod begins again when the lock has expired, with executors of its own."""
    jobs.fill()
    began = time.monotonic()
    jobs.start("driver-killed")
    jobs.await_rows()
    jobs.kill(jobs.driver("driver-killed"))
    check(jobs, "driver-killed", report, began)


def test_the_application_for_the_operator(jobs: AuditJobs, report: Report) -> None:
    """Its driver and its executors start from the image as from Spark's own."""
    jobs.fill()
    began = time.monotonic()
    jobs.start_as_operator("operator")
    check(jobs, "operator", report, began)


def test_the_role_has_what_is_needed_and_no_more(jobs: AuditJobs) -> None:
    """By the API server's own audit log: nothing that was asked was forbidden, and each verb was used."""
    events = [json.loads(line) for line in (sandbox() / "api-audit.log").read_text().splitlines()]
    account = f"system:serviceaccount:{jobs.namespace}:{ACCOUNT}"
    asked = {
        (event["objectRef"]["resource"], event["verb"], event["annotations"]["authorization.k8s.io/decision"])
        for event in events
        if event["user"]["username"] == account
    }
    allowed = {
        (what, verb, "allow") for rule in jobs.role["rules"] for what in rule["resources"] for verb in rule["verbs"]
    }
    assert asked == allowed
