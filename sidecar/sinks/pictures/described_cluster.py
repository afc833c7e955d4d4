"""One cluster, as its leading REST server describes it from picture to picture."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Final, TypeVar

from msgspec.json import Decoder
from msgspec.structs import replace

from sidecar.core.bounds import REST_ANSWER, REST_SMALL_ANSWER
from sidecar.core.moment import SECOND, Moment
from sidecar.core.pictures import (
    ENDED,
    MOST_APPLICATIONS,
    MOST_JOBS,
    MOST_TASK_MANAGERS,
    Checkpoints,
    Job,
    Picture,
    PictureRequest,
    TaskManager,
)
from sidecar.core.reach import Reach
from sidecar.core.sanitize import clean
from sidecar.net.rest_client import RestConnection, RestError, TooSlowError, is_off
from sidecar.sinks.pictures import rest_answers
from sidecar.sinks.pictures.rest_answers import MOST_NAME, JobOverview, decoded, refusal

TOTAL_SECONDS: Final = 10.0
"""The time for one picture."""
MOST_READ: Final = 10
"""Jobs whose checkpoints are read for one picture."""
MOST_READ_THOROUGHLY: Final = 100
"""Jobs whose checkpoints are read for one thorough picture."""
_STARTING: Final = frozenset({"INITIALIZING", "CREATED", "RECONCILING"})
"""Job states in which nothing is restored yet."""
_MOST_DIGITS: Final = 10
_LARGE: Final = frozenset({"/jobs/overview", "/taskmanagers", "/applications/overview"})
_OK: Final = 200
_NOT_FOUND: Final = 404
_CLUSTER_IDS: Final = ("high-availability.cluster-id", "kubernetes.cluster-id")
_REFRESH_INTERVAL: Final = "web.refresh-interval"
_DEFAULT_REFRESH: Final = 3 * SECOND
_REFRESH_MARGIN: Final = SECOND

_T = TypeVar("_T")


class DescribedCluster:
    """The data that was read from one address, and that the previous picture shows. Used by one thread."""

    def __init__(self, address: str, connection: RestConnection, clock: Callable[[], Moment]) -> None:
        self.address = address
        self.is_slow = False
        """True if the last picture took long."""
        self.reach: Reach | None = None
        """The furthest reach of the requests of the last picture."""
        self._connection = connection
        self._clock = clock
        self._deadline = 0.0
        self._jobs: dict[str, Job] = {}
        """The jobs of the previous picture."""
        self._tried: dict[str, int] = {}
        """The times at which each job's checkpoints were last asked for (steady)."""
        self._refresh = _DEFAULT_REFRESH
        """The greatest age of an answer that Flink has cached, in microseconds."""
        self._has_applications = True

    @property
    def jobs(self) -> int:
        """The number of remembered jobs."""
        return len(self._jobs)

    def close(self) -> None:
        """Close the connection until the next picture."""
        self._connection.close()

    def picture(self, request: PictureRequest) -> Picture:
        """A picture. Raises RestError."""
        self._deadline, self.reach = time.monotonic() + TOTAL_SECONDS, None
        overview = self._overview(request.cluster_id)
        at = self._clock().wall
        managers, managers_beyond = self._managers()
        applications = self._applications()
        overviews, beyond = _most_important(self._required("/jobs/overview", rest_answers.JOBS).jobs)
        jobs = {job_id: overview.job(self._jobs.get(job_id)) for job_id, overview in overviews.items()}
        picture = Picture(
            at,
            self.address,
            tuple(jobs.values()),
            beyond,
            managers,
            managers_beyond,
            overview.slots_total if overview else None,
            overview.slots_available if overview else None,
            applications,
        ).bounded(request.most)
        self._jobs = {} if picture.left_out else jobs  # what is read of a job is kept even if the next request fails
        self._tried = {job_id: at for job_id, at in self._tried.items() if job_id in self._jobs}
        self._read_checkpoints(request, overviews)
        return replace(picture, jobs=tuple(self._jobs.values()))

    def _overview(self, cluster_id: str) -> rest_answers.Overview | None:
        """The first answer; over a new connection, after it is known that the server belongs to the cluster."""
        if self._connection.is_open:
            try:
                return self._optional("/overview", rest_answers.OVERVIEW)
            except TooSlowError:
                raise
            except RestError:
                self._connection.close()  # the server has closed it meanwhile, or another process answers
        self._identify(cluster_id)
        return self._optional("/overview", rest_answers.OVERVIEW)

    def _identify(self, cluster_id: str) -> None:
        """Raises RestError if the server belongs to another cluster: an address may be used again."""
        options = self._optional("/jobmanager/config", rest_answers.OPTIONS) or []
        ids = [option.value.strip("/") for option in options if option.key in _CLUSTER_IDS]
        # The id of a cluster that is found may begin with its namespace.
        if ids and not any(f"/{cluster_id}".endswith(f"/{name}") for name in ids):
            self.reach = None
            raise RestError(f"the REST server belongs to another cluster: {clean(ids[0], MOST_NAME)}")
        refresh = next((option.value for option in options if option.key == _REFRESH_INTERVAL), "")
        milliseconds = refresh.removesuffix("ms").strip()
        # In another unit it is a duration that is not worth parsing: a failover is assessed within minutes.
        self._refresh = (
            int(milliseconds) * 1000
            if milliseconds.isdecimal() and len(milliseconds) < _MOST_DIGITS
            else _DEFAULT_REFRESH
        )

    def _managers(self) -> tuple[tuple[TaskManager, ...] | None, int]:
        """The TaskManagers, if they are known, and how many more there are."""
        answer = self._optional("/taskmanagers", rest_answers.TASK_MANAGERS)
        if answer is None:
            return None, 0
        return answer.described(MOST_TASK_MANAGERS), max(0, len(answer.taskmanagers) - MOST_TASK_MANAGERS)

    def _applications(self) -> tuple[tuple[str, str], ...] | None:
        if not self._has_applications:
            return None
        status, content = self._get("/applications/overview")
        self._has_applications = status != _NOT_FOUND
        if status != _OK:
            return None
        return decoded(rest_answers.APPLICATIONS, content, "/applications/overview").described(MOST_APPLICATIONS)

    def _read_checkpoints(self, request: PictureRequest, overviews: dict[str, JobOverview]) -> None:
        """Read those of some jobs: of `request.first`, then those that were not asked for the longest time."""
        running = [job for job in self._jobs.values() if job.state not in ENDED | _STARTING]
        first = {job_id: number for number, job_id in enumerate(request.first)}
        running.sort(key=lambda job: (first.get(job.id, len(first)), self._tried.get(job.id, -1)))
        for job in islice(running, MOST_READ_THOROUGHLY if request.thorough else MOST_READ):
            if time.monotonic() >= self._deadline:
                return
            self._tried[job.id] = self._clock().steady
            try:
                settled = overviews[job.id].unchanged_for > self._refresh + _REFRESH_MARGIN
                checkpoints = self._checkpoints(job, settled=settled)
                restarts = self._restarts(job) if request.thorough else job.restarts
            except TooSlowError:
                return  # what is left of the time may be needed elsewhere, and the picture is good without
            except RestError:
                continue
            self._jobs[job.id] = replace(job, checkpoints=checkpoints or job.checkpoints, restarts=restarts)

    def _checkpoints(self, job: Job, *, settled: bool) -> Checkpoints | None:
        """None: nothing that is certain. Raises RestError."""
        path = f"/jobs/{job.id}/checkpoints"
        at = self._clock().wall
        status, content = self._get(path)
        previous = job.checkpoints
        interval, off = (previous.interval, not previous.enabled) if previous else (None, False)
        if status == _OK:
            statistics = decoded(rest_answers.CHECKPOINTS, content, path)
            if interval is None and not off:
                config = self._optional(f"{path}/config", rest_answers.CONFIG)
                interval = config.microseconds if config else None
                off = config is not None and interval is None
            checkpoints = statistics.checkpoints(job, interval, at)
            # "Without state" is believed once it can no longer be from a cache.
            if checkpoints and (checkpoints.restored or settled or previous or not checkpoints.restored_known):
                return replace(checkpoints, enabled=not off)
            return None
        off = status == _NOT_FOUND and is_off(refusal(status, content))
        return Checkpoints(at, enabled=False) if off and settled else None

    def _restarts(self, job: Job) -> int | None:
        path = f"/jobs/{job.id}/metrics?get=numRestarts"
        metrics = self._optional(path, rest_answers.METRICS) or []
        value = next((metric.value for metric in metrics if metric.id == "numRestarts"), "")
        return int(value) if value.isdecimal() and len(value) < _MOST_DIGITS else job.restarts

    def _required(self, path: str, decoder: "Decoder[_T]") -> _T:
        status, content = self._get(path)
        if status != _OK:
            raise RestError(refusal(status, content))
        return decoded(decoder, content, path)

    def _optional(self, path: str, decoder: "Decoder[_T]") -> _T | None:
        """None: Flink has no such answer, or not now."""
        status, content = self._get(path)
        return decoded(decoder, content, path) if status == _OK else None

    def _get(self, path: str) -> tuple[int, bytes]:
        bound = REST_ANSWER if path in _LARGE or path.endswith("/checkpoints") else REST_SMALL_ANSWER
        seconds = min(bound.most_seconds, self._deadline - time.monotonic())
        try:
            return self._connection.get(path, seconds, bound.most_bytes)
        finally:
            if self.reach is not Reach.ANSWERS:
                self.reach = self._connection.reach


def _most_important(jobs: list[JobOverview]) -> tuple[dict[str, JobOverview], int]:
    """The jobs of a picture by their ids, those that have not ended first, then the latest; and how many more there are."""
    jobs.sort(key=lambda job: (job.state in ENDED, -job.last_modification if job.state in ENDED else job.start_time))
    latest = {job.jid: job for job in reversed(jobs[:MOST_JOBS])}
    return dict(reversed(latest.items())), max(0, len(jobs) - MOST_JOBS)
