"""A picture of what Flink's REST server says; of what it should not say, a problem."""

import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from sidecar.core.bounds import REST_ANSWER
from sidecar.core.moment import LATEST
from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import MOST_JOBS, MOST_TASK_MANAGERS, Checkpoint, Picture, PictureRequest, Restored
from sidecar.runtime.clock import Clock
from sidecar.settings import TlsSettings
from sidecar.sinks.pictures import picture_taker
from sidecar.sinks.pictures.described_cluster import MOST_READ, MOST_READ_THOROUGHLY
from sidecar.sinks.pictures.picture_taker import CAPACITY, THREADS_OF_A_LANE, PictureTaker
from sidecar.sinks.pictures.rest_answers import MOST_NAME
from tests.kit.certificates import Authority
from tests.kit.cluster import CLUSTER
from tests.kit.flink_rest_server import ELECTING, INITIALIZING, Answer, RestServer, drip, silence
from tests.kit.pictured_flink import STARTED, completed, job_id, listed, pictured, statistics
from tests.kit.waiting import PATIENCE_SECONDS
from tests.sinks.pictures.conftest import Take

MILLISECOND = 1000
OVERVIEW, JOBS, TASK_MANAGERS = "/overview", "/jobs/overview", "/taskmanagers"
APPLICATIONS, CONFIG = "/applications/overview", "/jobmanager/config"


def picture(answer: PictureTaken) -> Picture:
    assert answer.problem is None
    assert answer.picture
    return answer.picture


def problem(answer: PictureTaken) -> str:
    assert answer.picture is None
    assert answer.problem
    return answer.problem


def read(taken: Picture) -> list[str]:
    """The jobs whose checkpoints are in the picture."""
    return [job.id for job in taken.jobs if job.checkpoints]


def asked(server: RestServer) -> list[str]:
    """The jobs whose checkpoints were asked for."""
    return [path.split("/")[2] for path in server.asked if path.endswith("/checkpoints")]


def test_of_a_picture_that_may_not_hold_so_much_there_are_only_numbers(take: Take) -> None:
    """Nor are checkpoints asked for, or jobs remembered, that would not be kept."""
    with RestServer(pictured(listed(), checkpoints=statistics(completed(41)))) as server:
        taken = picture(take(server.address, most=1))
        assert (taken.left_out, taken.jobs, taken.jobs_beyond, taken.task_managers) == (True, (), 1, None)
        assert asked(server) == []
        assert not picture(take(server.address)).left_out


def test_all_clusters_together_have_so_many_remembered_jobs(monkeypatch: pytest.MonkeyPatch, take: Take) -> None:
    """Beyond that, what is known of the cluster that was asked first is forgotten: its jobs are read anew."""
    monkeypatch.setattr(picture_taker, "MOST_HELD", 1)
    with RestServer(pictured(listed(), checkpoints=statistics(completed(41)))) as server:
        for namespace in ("one", "two", "one"):
            assert read(picture(take(server.address, cluster=f"{namespace}/{CLUSTER}")))
        assert server.connected == 3


def test_a_picture_has_what_flink_says(take: Take) -> None:
    """Jobs, checkpoints, TaskManagers, slots and applications."""
    history = completed(43, status="IN_PROGRESS"), completed(42), completed(41)
    with RestServer(pictured(listed(), checkpoints=statistics(*history, restored=40))) as server:
        taken = picture(take(server.address))
    assert (taken.leader, taken.slots_total, taken.slots_free) == (server.address, 4, 1)
    assert taken.applications == (("orders", "RUNNING"),)
    assert [task_manager.id for task_manager in taken.task_managers or ()] == ["tm-1"]
    (job,) = taken.jobs
    assert (job.id, job.name, job.state, job.is_running, job.restarts) == (job_id(1), "orders", "RUNNING", True, 3)
    assert (job.started_at, job.changed_at) == (STARTED * MILLISECOND, (STARTED + 500) * MILLISECOND)
    assert job.checkpoints
    began = (STARTED + 42_000) * MILLISECOND
    assert job.checkpoints.latest == Checkpoint(
        42, began, began + 94 * MILLISECOND, 265, "file:/data/checkpoints/chk-42"
    )
    assert job.checkpoints.restored == Restored(40)
    assert (job.checkpoints.first_id, job.checkpoints.interval, job.checkpoints.shortest) == (
        41,
        1_000_000,
        94 * MILLISECOND,
    )


def test_one_connection_is_kept_for_all_pictures(take: Take) -> None:
    """And made again if the server closes it while nothing is asked."""
    with RestServer(pictured()) as server:
        take(server.address)
        take(server.address)
        assert server.connected == 1
        server.hang_up()
        picture(take(server.address))
        assert server.connected == 2


def test_what_does_not_change_is_asked_once_of_a_leader(take: Take) -> None:
    """The interval of checkpoints; and applications, which Flink has since 2.3."""
    with RestServer(pictured(other={APPLICATIONS: Answer({"errors": ["Not found."]}, 404)})) as server:
        pictures = [picture(take(server.address)) for _ in range(3)]
        assert server.asked.count("/applications/overview") == 1
        assert server.asked.count(f"/jobs/{job_id(1)}/checkpoints/config") == 1
    assert {taken.applications for taken in pictures} == {None}
    assert all(job.checkpoints and job.checkpoints.interval == 1_000_000 for taken in pictures for job in taken.jobs)


def test_the_checkpoints_of_few_jobs_are_read_for_a_picture(take: Take) -> None:
    """Those that were not read for the longest time; what is known of the others stays, with the time at which it was read."""
    jobs = [listed(number) for number in range(25)]
    with RestServer(pictured(*jobs)) as server:
        pictures = [picture(take(server.address, thorough=False)) for _ in range(4)]
        numbers = asked(server)
    assert [len(read(taken)) for taken in pictures] == [MOST_READ, 2 * MOST_READ, 25, 25]
    assert sorted(numbers[:25]) == [job_id(number) for number in range(25)]
    assert len(numbers) == 4 * MOST_READ
    times = [{job.id: job.checkpoints.read_at for job in taken.jobs if job.checkpoints} for taken in pictures]
    assert all(times[1][job] == times[0][job] for job in read(pictures[0]))


def test_a_thorough_picture_reads_more_and_first_what_is_needed(take: Take) -> None:
    """In the order in which they are requested."""
    jobs = [listed(number) for number in range(MOST_READ_THOROUGHLY + 20)]
    first = job_id(119), job_id(7), job_id(110)
    with RestServer(pictured(*jobs)) as server:
        picture(take(server.address, *first))
        numbers = asked(server)
    assert (tuple(numbers[:3]), len(numbers)) == (first, MOST_READ_THOROUGHLY)


def test_the_first_checkpoint_of_a_leader_is_remembered(take: Take) -> None:
    """Flink forgets the oldest ones of its history. Once it has, the first is not known any more to who did not see it."""
    later = statistics(completed(60), completed(59), restored=40, total=20)
    answers = pictured(checkpoints=statistics(completed(41), restored=40))
    answers[f"/jobs/{job_id(1)}/checkpoints"].append(Answer(later))
    with RestServer(answers) as server:
        take(server.address)
        (job,) = picture(take(server.address)).jobs
    assert job.checkpoints
    assert job.checkpoints.first_id == 41
    with RestServer(pictured(checkpoints=later)) as server:
        (job,) = picture(take(server.address)).jobs
    assert job.checkpoints
    assert job.checkpoints.first_id is None


@pytest.mark.parametrize(
    "wrong",
    [
        statistics(completed(1)),
        statistics(completed(42, trigger_timestamp=STARTED - 1)),
        statistics(completed(42, status="FAILED"), restored=None)
        | {"counts": {"restored": 1, "total": 1, "completed": 0}},
        {"latest": {"restored": None}},
    ],
    ids=["an id that goes back", "from before its JobMaster", "counts of something else", "incomplete"],
)
def test_statistics_that_cannot_be_true_are_not_believed(take: Take, wrong: dict[str, Any]) -> None:
    """What was known before stays, with its time."""
    answers = pictured(checkpoints=statistics(completed(42), completed(41), restored=40))
    answers[f"/jobs/{job_id(1)}/checkpoints"].append(Answer(wrong))
    with RestServer(answers) as server:
        before = picture(take(server.address)).jobs
        assert picture(take(server.address)).jobs == before


@pytest.mark.parametrize("state", ["INITIALIZING", "CREATED", "RECONCILING"])
def test_a_job_that_starts_has_no_checkpoints_yet(take: Take, state: str) -> None:
    """That it was restored from nothing cannot be known yet, and is not asked."""
    with RestServer(pictured(listed(state=state))) as server:
        (job,) = picture(take(server.address)).jobs
        assert asked(server) == []
    assert job.checkpoints is None


def test_that_a_job_began_without_state_is_not_believed_at_once(take: Take) -> None:
    """Flink answers from a cache for some seconds: the answer may be older than the job's last change."""
    fresh = listed(changed={"duration": 600})
    with RestServer(pictured(fresh, checkpoints=statistics())) as server:
        (job,) = picture(take(server.address)).jobs
    assert job.checkpoints is None
    with RestServer(pictured(listed(), checkpoints=statistics())) as server:
        (job,) = picture(take(server.address)).jobs
    assert job.checkpoints
    assert (job.checkpoints.restored, job.checkpoints.completed) == (None, ())


@pytest.mark.parametrize("answer", [INITIALIZING, ELECTING, Answer({"errors": ["not found"]}, 404), Answer(b"<html>")])
def test_checkpoints_that_cannot_be_read_are_not_known(take: Take, answer: Answer) -> None:
    """None of these means: no checkpoint. The rest of the picture is good."""
    answers = pictured()
    answers[f"/jobs/{job_id(1)}/checkpoints"] = [answer]
    with RestServer(answers) as server:
        (job,) = picture(take(server.address)).jobs
    assert (job.state, job.checkpoints) == ("RUNNING", None)


OFF = Answer({"mode": "at_least_once", "interval": (1 << 63) - 1})
"""A streaming job's configuration without checkpoints, as Flink 1.20.5 and 2.3.0 say it."""


@pytest.mark.parametrize(
    "refusal",
    [
        "org.apache.flink.runtime.rest.handler.RestHandlerException: Checkpointing has not been enabled.\n\tat org.apache",
        f"Checkpointing was not enabled for job {job_id(1)}.",
    ],
)
def test_a_batch_job_takes_no_checkpoints(take: Take, refusal: str) -> None:
    """Flink refuses, in words that differ; and it stays so from picture to picture."""
    answers = pictured()
    answers[f"/jobs/{job_id(1)}/checkpoints"] = [Answer({"errors": [refusal]}, 404)]
    with RestServer(answers) as server:
        known = [picture(take(server.address)).jobs[0].checkpoints for _ in range(3)]
    assert [read and read.enabled for read in known] == [False] * 3


@pytest.mark.parametrize("restored", [None, 7])
def test_a_streaming_job_without_checkpoints_stays_one(take: Take, restored: int | None) -> None:
    """Flink answers with empty statistics. The configuration is asked once, and a savepoint that it began from is known."""
    answers = pictured(checkpoints=statistics(restored=restored))
    answers[f"/jobs/{job_id(1)}/checkpoints/config"] = [OFF]
    with RestServer(answers) as server:
        known = [picture(take(server.address)).jobs[0].checkpoints for _ in range(3)]
        assert server.asked.count(f"/jobs/{job_id(1)}/checkpoints/config") == 1
    assert [read and (read.enabled, read.restored and read.restored.id) for read in known] == [(False, restored)] * 3


def test_many_jobs_are_bounded(take: Take) -> None:
    """Those that have ended go first; all are counted."""
    jobs = [listed(number, state="FINISHED" if number < 10 else "RUNNING") for number in range(MOST_JOBS + 7)]
    with RestServer(pictured(*jobs)) as server:
        taken = picture(take(server.address, thorough=False))
    assert (len(taken.jobs), taken.jobs_beyond) == (MOST_JOBS, 7)
    assert sum(job.state == "FINISHED" for job in taken.jobs) == 3


def test_many_task_managers_are_bounded(take: Take) -> None:
    many = [{"id": f"tm-{number}", "path": ""} for number in range(MOST_TASK_MANAGERS + 1)]
    with RestServer(pictured(other={TASK_MANAGERS: Answer({"taskmanagers": many})})) as server:
        taken = picture(take(server.address))
    assert (len(taken.task_managers or ()), taken.task_managers_beyond) == (MOST_TASK_MANAGERS, 1)


def test_names_and_paths_are_bounded_and_cleaned(take: Take) -> None:
    """Whoever may submit a job chooses its name."""
    evil = "\x1b[2J\u202e<!channel>\0" * 4000
    path = {"external_path": evil}
    answers = pictured(
        listed(name=evil),
        checkpoints=statistics(completed(1, **path)),
        other={
            TASK_MANAGERS: Answer({"taskmanagers": [{"id": evil, "path": evil}]}),
            APPLICATIONS: Answer({"applications": [{"name": evil, "status": evil}]}),
            OVERVIEW: Answer({"slots-total": 1, "slots-available": 0, "flink-version": evil}),
        },
    )
    with RestServer(answers) as server:
        taken = picture(take(server.address))
    (job,) = taken.jobs
    ((name, status),) = taken.applications or ()
    (manager,) = taken.task_managers or ()
    texts = [job.name, name, status, manager.id]
    assert all(text.isprintable() for text in texts)
    assert max(map(len, texts[:3])) <= MOST_NAME + 1
    assert max(map(len, texts)) < 2000
    assert job.checkpoints
    assert job.checkpoints.latest
    assert job.checkpoints.latest.path is None


def huge(stopping: threading.Event) -> Iterable[bytes]:
    """Content of 100 MB, as long as somebody reads it."""
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n"
    for _ in range(100):
        if stopping.is_set():
            return
        yield b" " * (1 << 20)


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        (ELECTING, "status 503: Service temporarily unavailable due to an ongoing leader election"),
        (INITIALIZING, "status 500: Unable to get JobMasterGateway for initializing job"),
        (Answer(status=302, headers="Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (Answer(b"<html>login</html>"), "not an answer of Flink's to /jobs/overview"),
        (Answer({"jobs": "none"}), "not an answer of Flink's to /jobs/overview"),
        (Answer({}), "not an answer of Flink's to /jobs/overview"),
        (Answer({"jobs": [listed(changed={"jid": "../../etc/passwd"})]}), "not an answer of Flink's to /jobs/overview"),
        (Answer({"jobs": [listed(state="RUN\x1b[2J")]}), "not an answer of Flink's to /jobs/overview"),
        (Answer({"jobs": [listed(changed={"start-time": 1 << 62})]}), "not an answer of Flink's to /jobs/overview"),
        (Answer(raw=silence), "has not answered in time"),
        (Answer(raw=drip), "has not answered in time"),
        (Answer(raw=huge), f"more than {REST_ANSWER.most_bytes >> 20} MiB"),
        (Answer(raw=lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}"]), "IncompleteRead"),
        (Answer(raw=lambda _: [b"SSH-2.0-OpenSSH_9.2\r\n"]), "BadStatusLine"),
        (Answer(raw=lambda _: []), "RemoteDisconnected"),
    ],
)
def test_no_picture_but_a_problem(take: Take, jobs: Answer, expected: str) -> None:
    """One printable line, whatever the server does; and the next picture is taken."""
    answers = {**pictured(), JOBS: [jobs, Answer({"jobs": [listed()]})]}
    with RestServer(answers) as server:
        line = problem(take(server.address))
        assert picture(take(server.address)).jobs
    assert expected in line
    assert line.isprintable()
    assert len(line) < 400


def test_an_empty_cluster_is_a_picture(take: Take) -> None:
    """A session cluster without a job."""
    with RestServer(pictured(other={JOBS: Answer({"jobs": []})})) as server:
        assert picture(take(server.address)).jobs == ()


@pytest.mark.parametrize("where", [OVERVIEW, TASK_MANAGERS, APPLICATIONS])
def test_without_an_answer_for_the_rest_there_is_a_picture_of_the_jobs(take: Take, where: str) -> None:
    """While Flink elects a leader some of its handlers answer before others: not known is not none."""
    with RestServer(pictured(other={where: ELECTING})) as server:
        taken = picture(take(server.address))
    assert len(taken.jobs) == 1
    unknown = {OVERVIEW: taken.slots_total, TASK_MANAGERS: taken.task_managers, APPLICATIONS: taken.applications}
    assert [name for name, value in unknown.items() if value is None] == [where]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://127.0.0.1:1", "port 1 is not allowed"),
        ("http://169.254.169.254:80", "no JobManager can have the address 169.254.169.254"),
        ("http://[fd00:ec2::254]:80", "no JobManager can have the address fd00:ec2::254"),
        ("file:///etc/passwd", "not the address of a REST server"),
        ("http://jm\r\nX: y:8081", "not the address of a REST server"),
        ("", "not the address of a REST server"),
    ],
)
def test_addresses_at_which_no_job_manager_can_be_are_refused(take: Take, address: str, expected: str) -> None:
    """Whoever can write to the leader paths chooses the address."""
    assert expected in problem(take(address))


def test_nobody_listens(take: Take) -> None:
    """As while a JobManager starts."""
    with RestServer({}) as server:
        pass
    assert problem(take(server.address)) == "Flink's REST server cannot be reached: connection refused"


@pytest.mark.parametrize("key", ["high-availability.cluster-id", "kubernetes.cluster-id"])
def test_another_cluster_at_the_same_address_is_a_problem(take: Take, key: str) -> None:
    """Its jobs are not read; names of the id are compared without slashes."""
    with RestServer(pictured(other={CONFIG: Answer([{"key": key, "value": "/other\x1b[2J"}])})) as server:
        line = problem(take(server.address))
        assert "/jobs/overview" not in server.asked
    assert line.startswith("the REST server belongs to another cluster: other")
    assert line.isprintable()
    with RestServer(pictured(other={CONFIG: Answer([{"key": key, "value": f"/{CLUSTER}/"}])})) as server:
        picture(take(server.address))


def test_nothing_is_kept_of_a_job_that_another_leader_runs(take: Take) -> None:
    """Each JobMaster counts from its own start."""
    with RestServer(pictured(checkpoints=statistics(completed(41), restored=40))) as before:
        take(before.address)
    with RestServer(pictured(listed(state="INITIALIZING"))) as after:
        (job,) = picture(take(after.address)).jobs
    assert job.checkpoints is None


def test_nothing_is_kept_of_a_job_that_began_anew(take: Take) -> None:
    """Under the same address: a JobManager that won leadership again."""
    answers = pictured(checkpoints=statistics(completed(41), restored=40))
    answers["/jobs/overview"].append(
        Answer({"jobs": [listed(state="INITIALIZING", changed={"start-time": STARTED + 90_000})]})
    )
    with RestServer(answers) as server:
        take(server.address)
        (job,) = picture(take(server.address)).jobs
    assert job.checkpoints is None


def test_with_tls_the_server_is_authenticated(
    taker: Callable[[TlsSettings | None], tuple[PictureTaker, SimpleQueue[PictureTaken]]], tmp_path: Path
) -> None:
    """By the CAs of the configuration; one that they did not sign gets no request."""
    authority = Authority(tmp_path / "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", "IP:127.0.0.1"))
    with RestServer(pictured(), context) as server:
        request = PictureRequest(CLUSTER, server.address, thorough=True)
        running, answers = taker(None)
        running.take(request)
        assert "CERTIFICATE_VERIFY_FAILED" in problem(answers.get(timeout=PATIENCE_SECONDS))
        assert server.asked == []
        running, answers = taker(TlsSettings(ca_file=authority.ca))
        running.take(request)
        assert picture(answers.get(timeout=PATIENCE_SECONDS)).jobs


def test_tls_files_that_cannot_be_used_are_named(
    taker: Callable[[TlsSettings | None], tuple[PictureTaker, SimpleQueue[PictureTaken]]],
) -> None:
    """At each picture: they may be mounted later."""
    running, answers = taker(TlsSettings(ca_file=Path("/no/ca.pem")))
    with RestServer({}) as server:
        running.take(PictureRequest(CLUSTER, server.address.replace("http:", "https:"), thorough=True))
        assert "/no/ca.pem" in problem(answers.get(timeout=PATIENCE_SECONDS))


def test_every_request_is_answered_once() -> None:
    """Those that are too many, too: as not asked."""
    answers = SimpleQueue[PictureTaken]()
    running = PictureTaker(Clock())
    for number in range(CAPACITY + 5):
        running.take(PictureRequest(f"cluster-{number}", "nowhere", thorough=True))
    running.start(answers.put)
    problems = [problem(answers.get(timeout=PATIENCE_SECONDS)) for _ in range(CAPACITY + 5)]
    running.stop()
    assert answers.empty()
    # Two threads take them: at most one more request than the limit is taken at that moment.
    assert problems.count("not asked: too many other clusters wait") in {4, 5}
    assert problems.count("not the address of a REST server: nowhere") >= CAPACITY


def test_clusters_whose_failover_is_assessed_come_first() -> None:
    """However many others wait."""
    answers = SimpleQueue[PictureTaken]()
    running = PictureTaker(Clock())
    for number in range(100):
        running.take(PictureRequest(f"cluster-{number}", "nowhere"))
    running.take(PictureRequest(CLUSTER, "nowhere", thorough=True))
    running.start(answers.put)
    assert CLUSTER in {answers.get(timeout=PATIENCE_SECONDS).cluster_id for _ in range(THREADS_OF_A_LANE)}
    running.stop()


def test_servers_that_hang_delay_only_each_other(
    taker: Callable[[TlsSettings | None], tuple[PictureTaker, SimpleQueue[PictureTaken]]],
) -> None:
    """Known after the first time: a healthy cluster is then answered before them, though they were asked for first."""
    running, answers = taker(None)
    hanging = [f"hanging-{number}" for number in range(4)]
    with RestServer({CONFIG: [Answer(raw=silence)]}) as silent, RestServer(pictured()) as healthy:

        def ask() -> None:
            for name in hanging:
                running.take(PictureRequest(name, silent.address, thorough=True))

        ask()
        problems = {answers.get(timeout=PATIENCE_SECONDS).problem for _ in hanging}
        assert problems == {"Flink's REST server has not answered in time"}
        ask()
        running.take(PictureRequest(CLUSTER, healthy.address, thorough=True))
        assert picture(answers.get(timeout=PATIENCE_SECONDS)).leader == healthy.address


def test_an_answer_without_end_takes_little_memory(take: Take) -> None:
    """What is too large is not read to its end, and nothing of it stays."""
    with RestServer({**pictured(), JOBS: [Answer(raw=huge)]}) as server:
        tracemalloc.start()
        try:
            assert "more than 4 MiB" in problem(take(server.address))
            left, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 5 * REST_ANSWER.most_bytes
    assert left < REST_ANSWER.most_bytes


def test_many_small_objects_are_not_decoded(take: Take) -> None:
    """Four megabytes of them would be fifty of values, in each thread that takes pictures."""
    managers = b'{"taskmanagers":[' + b",".join([b'{"id":""}'] * 400_000) + b"]}"
    with RestServer({**pictured(), "/taskmanagers": [Answer(managers)]}) as server:
        tracemalloc.start()
        try:
            assert "with more than 40,000 objects" in problem(take(server.address))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 5 * REST_ANSWER.most_bytes


def test_jobs_that_are_too_many_to_be_read_are_a_problem(take: Take) -> None:
    """50,000 of them: a part of them would be a wrong picture."""
    with RestServer(pictured(other={JOBS: Answer({"jobs": [listed(number) for number in range(50_000)]})})) as server:
        assert "more than 4 MiB" in problem(take(server.address))


@pytest.mark.parametrize("restarts", ["9" * 90, "-1", "NaN", ""])
def test_numbers_that_cannot_be_kept_are_not_believed(take: Take, restarts: str) -> None:
    """The journal has 64 bits, and calendars end: what is beyond is unknown, and nothing else is lost for it."""
    most = 1 << 70
    last = completed(1, state_size=most, end_to_end_duration=LATEST // MILLISECOND)
    numbers = {**statistics(last), "summary": {"end_to_end_duration": {"min": most}}}
    job = listed(changed={"start-time": -1, "last-modification": -1})
    checkpoints = f"/jobs/{job_id(1)}/checkpoints"
    other = {
        f"{checkpoints}/config": Answer({"interval": (1 << 62) - 1}),
        f"/jobs/{job_id(1)}/metrics?get=numRestarts": Answer([{"id": "numRestarts", "value": restarts}]),
    }
    with RestServer(pictured(job, checkpoints=numbers, other=other)) as server:
        (pictured_job,) = picture(take(server.address)).jobs
    figures = pictured_job.checkpoints
    assert figures
    assert figures.latest
    assert (figures.interval, figures.shortest, figures.latest.size, pictured_job.restarts) == (None, None, None, None)
    assert figures.latest.ended_at == LATEST
    assert pictured_job.started_at == pictured_job.changed_at == 0


def test_it_stops_while_a_server_is_silent(
    taker: Callable[[TlsSettings | None], tuple[PictureTaker, SimpleQueue[PictureTaken]]],
) -> None:
    """What waits is not answered; stopping twice, or before the start, does no harm."""
    running, answers = taker(None)
    with RestServer(pictured(other={OVERVIEW: Answer(raw=silence)})) as server:
        for _ in range(3):
            running.take(PictureRequest(CLUSTER, server.address, thorough=True))
        running.stop()
        running.stop()
    assert answers.qsize() <= 1
    PictureTaker(Clock()).stop()
