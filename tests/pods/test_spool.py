"""What becomes of the records of a sidecar whose pod is deleted."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kit.pods.cluster import POD_SECONDS, FlinkPods, Form, reachable, read_spool
from tests.kit.pods.outcome import observe
from tests.kit.s3_server import S3Server
from tests.kit.serving import serving
from tests.kit.waiting import wait_for
from tests.pods.conftest import Report

_POLL_SECONDS = 0.05


@contextmanager
def copies(folder: Path, into: Path) -> Iterator[None]:
    """Keep what is put into a folder of files that are never changed, as long as the block lasts."""
    stopping = threading.Event()

    def keep() -> None:
        while not stopping.wait(_POLL_SECONDS):
            with suppress(FileNotFoundError):  # gone with its folder
                for file in folder.rglob("*.jsonl.gz"):
                    with suppress(FileExistsError):
                        (into / file.name).hardlink_to(file)

    into.mkdir()
    keeping = threading.Thread(target=keep)
    keeping.start()
    try:
        yield
    finally:
        stopping.set()
        keeping.join()


def test_an_object_store_has_what_was_not_sealed(tmp_path: Path) -> None:
    """A pod is deleted right after a failover, with nothing sealed: it is all in the bucket when the pod is gone."""
    with serving(S3Server(tmp_path)) as server, reachable(f"127.0.0.1:{server.port}") as endpoint:
        credentials = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        settings = credentials | {"AWS_ENDPOINT_URL": f"http://{endpoint}", "AWS_ALLOW_HTTP": "true"}
        form = Form(
            config={"spool": {"url": "s3://bucket/spool", "roll_interval": "1h"}},
            container={"env": [{"name": name, "value": value} for name, value in settings.items()]},
        )
        with FlinkPods("object-store", form) as cluster:
            leader = cluster.leader()
            os.kill(cluster.process(leader), signal.SIGKILL)
            wait_for("a message", lambda: cluster.messages, POD_SECONDS)
            assert list(server.bucket.rglob("*.gz")) == []
            recorded = {each["id"] for each in json.loads(cluster.get(leader, "/api/v1/transitions"))}
            cluster.delete(leader)
            wait_for("the pod's end", lambda: cluster.again(leader) is None, POD_SECONDS)
            stored = list(read_spool(server.bucket / "spool" / leader.name))
    assert recorded
    assert recorded <= {each["id"] for each in stored}
    assert "delivered" in {each.get("outcome") for each in stored if each["type"] == "notification"}


def test_an_empty_dir_is_lost_with_its_pod(tmp_path: Path, report: Report) -> None:
    """The log says so beforehand. What the next sidecar records is the failover, from what the store has of it."""
    with FlinkPods("empty-dir", Form(spool_kept=False)) as cluster:
        leader = cluster.leader()
        folder = cluster.spool(leader)
        assert "emptyDir" in cluster.log(leader)
        with copies(folder, tmp_path / "copies"):
            outcome = observe(cluster, cluster.delete)
        lost = list(read_spool(tmp_path / "copies"))
        kept = list(read_spool(cluster.spool(cluster.leader())))
    assert not folder.exists()
    assert lost
    assert outcome.episode["id"] in {each["id"] for each in kept}
    types = {kind: sum(each["type"] == kind for each in lost) for kind in sorted({each["type"] for each in lost})}
    again = {each["id"] for each in lost} & {each["id"] for each in kept}
    report("one JobManager: pod deleted, spool on an emptyDir", outcome)
    report("records that were lost with the emptyDir", f"{types}; of which the next sidecar has {len(again)} too")
