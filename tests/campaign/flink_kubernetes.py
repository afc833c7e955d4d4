"""Flink's JobManagers as a ConfigMap shows them: tests/campaign/flink.py."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final
from urllib.error import HTTPError
from uuid import uuid4

from tests.campaign.diary import Diary
from tests.campaign.flink import CLUSTER, COMPONENTS, JOB, WRITE_SECONDS, FakeFlink, NotWrittenError, until_written
from tests.kit.kubernetes_server import Namespace

LEASE_SECONDS: Final = 6
_RENEW_SECONDS: Final = 1.0
_PREFIX: Final = "org.apache.flink.k8s.leader."
_KEYS: Final = {
    "resource_manager": f"{_PREFIX}resourcemanager",
    "dispatcher": f"{_PREFIX}dispatcher",
    "rest_server": f"{_PREFIX}restserver",
    "job": f"{_PREFIX}job-{JOB}",
}
CONFIG_MAP: Final = f"{CLUSTER}-cluster-config-map"


class KubernetesFlink(FakeFlink):
    """One ConfigMap, and a lease that its holder renews. A crash leaves everything as it is until the lease has run out."""

    def __init__(self, diary: Diary, namespace: Namespace) -> None:
        super().__init__(diary)
        self._namespace = namespace
        self._data: dict[str, str] = {f"executionPlan-{JOB}": "eA=="}
        self._holder = ""
        self._acquired = ""
        self._transitions = -1
        self._lock = threading.RLock()
        self._renewed_at = time.time()
        self._stopping = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="renewing", daemon=True)

    def start(self) -> None:
        until_written(lambda: self._namespace.create(CONFIG_MAP, self._data, None, self._labels))
        self.publish()
        self._renewing.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._renewing.ident:
            self._renewing.join(WRITE_SECONDS)

    def confirm(self) -> None:
        if self.leads:
            with self._lock:
                self._write()
        else:
            self.publish()

    def spoil(self, content: bytes) -> None:
        with self._lock, self._diary.noting("spoiled", session=self._session, component="dispatcher"):
            self._data[_KEYS["dispatcher"]] = content.decode("latin-1")
            self._write()

    def encoded(self, address: str) -> bytes:
        return f"{self._session},{address}".encode()

    def mend(self) -> None:
        with self._lock:
            self._data[_KEYS["dispatcher"]] = self._value("dispatcher")
            self._write()
        self._diary.note("mended", session=self._session, component="dispatcher")

    def begin_jobs(self, job_ids: Sequence[str]) -> None:
        with self._lock:
            for job_id in job_ids:
                self._data |= {f"executionPlan-{job_id}": "eA==", f"{_PREFIX}job-{job_id}": self._value("job")}
            self._write()

    def end_jobs(self, job_ids: Sequence[str]) -> None:
        with self._lock:
            for job_id in job_ids:
                for key in (f"executionPlan-{job_id}", f"{_PREFIX}job-{job_id}"):
                    self._data.pop(key, None)
            self._write()

    def remember(self) -> dict[str, str]:
        """What stands in the ConfigMap."""
        return dict(self._data)

    def recall(self, data: dict[str, str]) -> None:
        """The store was set back to when this stood there: the next leader finds it."""
        self._data = dict(data)

    @property
    def _labels(self) -> dict[str, str]:
        return {"app": CLUSTER, "type": "flink-native-kubernetes"}

    def _publish(self) -> None:
        with self._lock:
            self._holder = str(uuid4())
            self._acquired = _now()
            self._transitions += 1
            self._write()
            for name in [name for name in COMPONENTS if name != "job"]:
                if self._data.pop(_KEYS[name], None):
                    self._write()
            for name in COMPONENTS:
                self._data[_KEYS[name]] = self._value(name)
                self._write()

    def _withdraw(self, *, crash: bool) -> None:
        if crash:
            with self._lock:
                self._holder = ""
            time.sleep(LEASE_SECONDS + 0.5)
            return
        with self._lock:
            for name in COMPONENTS:
                if self._data.pop(_KEYS[name], None):
                    self._write()
            self._holder = ""
            self._write()

    def _value(self, name: str) -> str:
        return self.encoded(self.address(name)).decode()

    def _write(self) -> None:
        def write() -> None:
            lease = (
                f'{{"holderIdentity":"{self._holder}","leaseDuration":"PT{LEASE_SECONDS if self._holder else 1}S",'
                f'"acquireTime":"{self._acquired}","renewTime":"{_now()}","leaderTransitions":{self._transitions}}}'
            )
            self._namespace.replace(CONFIG_MAP, self._data, lease, self._labels)

        until_written(write)
        written_at = time.time()
        if written_at - self._renewed_at > LEASE_SECONDS - 1.0:
            self._diary.note("lapsed", session=self._session, since=self._renewed_at)
        self._renewed_at = written_at

    def _renew(self) -> None:
        while not self._stopping.wait(_RENEW_SECONDS):
            with self._lock:
                if self._holder and self.leads:
                    with suppress(NotWrittenError, HTTPError):
                        self._write()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
