"""Faults by whoever can write one document or one leader's address, and by clocks that are wrong."""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.campaign.faults_in_data import sealed
from tests.campaign.kinds import fail_over, kind, stop
from tests.campaign.scene import RECOVERY_SECONDS, Scene
from tests.kit.slow_silences import slow_silences

_HUGE: Final = (10**18, -(10**18), 2**63 - 1, 2**64, -1)
_HOUR: Final = 3600
_JOBS_AT_ONCE: Final = 200
_QUIET: Final = 45.0
"""Seconds."""

# -- the handover ------------------------------------------------------------------------------------------------------


def _huge_times(document: dict[str, Any], random: Random) -> bytes:
    """Each number of its alerts and of the failover in progress is one that no clock shows."""

    def huge(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: huge(each) for key, each in value.items()}
        if isinstance(value, list):
            return [huge(each) for each in value]
        return random.choice(_HUGE) if type(value) is int else value

    return json.dumps(
        {key: each if key in {"format", "alive"} else huge(each) for key, each in document.items()}
    ).encode()


def _many_rows(document: dict[str, Any], random: Random) -> bytes:
    """Its groups, many times over: 130 kB of them made one tick of 20 s."""
    member = {"alert": {"rule": "FlinkNoLeader", "cluster_id": "campaign", "labels": {}, "text": ""}, "told": True}
    groups = {
        f"{number:032x}": {"route": "{}", "labels": {}, "members": {str(random.random()): member}}
        for number in range(5000)
    }
    return json.dumps({**document, "groups": groups}).encode()


def _forged_plan(document: dict[str, Any], _: Random) -> bytes:
    """Flink's operator has suspended the job, for ever. There is no operator."""
    deployment = {"uid": "u", "generation": 2, "reconciled_at": 1}
    times = dict.fromkeys(("changed_at", "began", "unwanted_since"), document.get("alive"))
    return json.dumps({**document, "operated": {**deployment, "plan": "suspension", **times}}).encode()


def _other_format(document: dict[str, Any], _: Random) -> bytes:
    return json.dumps({**document, "format": 99}).encode()


def _nested(document: dict[str, Any], _: Random) -> bytes:
    return json.dumps(document).encode().replace(b"{", b'{"x":' + b"[" * 1200 + b"]" * 1200 + b",", 1)


def _garbled(_: dict[str, Any], random: Random) -> bytes:
    return random.randbytes(500)


_POISONS: Final[tuple[Callable[[dict[str, Any], Random], bytes], ...]] = (
    _huge_times,
    _many_rows,
    _forged_plan,
    _other_format,
    _nested,
    _garbled,
)


@kind(loses_journal=True)
def handover_poisoned(scene: Scene) -> None:
    """Somebody rewrites the handover, and a sidecar with an empty disk finds it. No poison says that another leader led."""
    watcher = scene.one()
    sealed(watcher)
    stop(watcher, scene)
    content = scene.read_document("handover")
    document = json.loads(zlib.decompress(b64decode(content), wbits=31)) if content else {"format": 1}
    poison = scene.moments.choice(_POISONS)(document, scene.moments)
    scene.write_document("handover", b64encode(zlib.compress(poison, wbits=31)))
    watcher.begin_anew()
    watcher.wait_ready(RECOVERY_SECONDS)  # a store that does not answer is asked for the handover for a minute
    fail_over(scene)


# -- silences ----------------------------------------------------------------------------------------------------------


@kind()
def silences_hostile(scene: Scene) -> None:
    """Somebody fills the silences with patterns that are slow to match and match nothing, then with what is no silence; then they go."""
    scene.write_document("silences", slow_silences())
    fail_over(scene)
    scene.write_document("silences", b"[" * 100_000)
    fail_over(scene)
    scene.write_document("silences", None)


# -- a leader's address ------------------------------------------------------------------------------------------------


@kind()
def long_addresses(scene: Scene) -> None:
    """The dispatcher's leader has an address of 65 kB, again and again another one: unreadable, which is not vacant."""
    for number in range(20):
        scene.flink.spoil(
            scene.flink.encoded(f"pekko.tcp://flink@{number:02}{'y' * 64_000}:6123/user/rpc/dispatcher_1")
        )
        scene.pause(0.02, 0.2)
    scene.flink.mend()
    fail_over(scene)


# -- jobs --------------------------------------------------------------------------------------------------------------


@kind()
def short_jobs(scene: Scene) -> None:
    """Thousands of jobs begin and end, two hundred at once, while a sidecar is restarted: most are in no list that is read. Then nothing
    happens for longer than a vacancy may last without an alert.
    """
    watcher = scene.one()
    for round_ in range(3):
        for _ in range(5):
            jobs = [f"{scene.moments.getrandbits(128):032x}" for _ in range(_JOBS_AT_ONCE)]
            scene.flink.begin_jobs(jobs)
            scene.pause(0.0, 0.2)
            if round_ == 1 and jobs:
                stop(watcher, scene)
                scene.flink.end_jobs(jobs)
                watcher.start().wait_ready(RECOVERY_SECONDS)
                break
            scene.flink.end_jobs(jobs)
    scene.pause(_QUIET, _QUIET)
    fail_over(scene)


# -- clocks ------------------------------------------------------------------------------------------------------------


@kind()
def clock_jumps(scene: Scene) -> None:
    """The clock of a sidecar's node is put an hour ahead, or back, and then right again. Leaders change all the time."""
    watcher = scene.one()
    ahead = scene.moments.choice((_HOUR, -_HOUR))
    for seconds in (ahead, 0):
        watcher.set_clock(seconds)
        scene.diary.note("clock", sidecar=watcher.name, ahead=seconds)
        scene.pause(0.0, 3.0)
        fail_over(scene)


@kind()
def clocks_apart(scene: Scene) -> None:
    """A sidecar begins while the clock of its node is an hour from that of the others, and is restarted when it is right again."""
    watcher = scene.one()
    ahead = scene.moments.choice((_HOUR, -_HOUR))
    for seconds in (ahead, 0):
        stop(watcher, scene)
        watcher.set_clock(seconds)
        scene.diary.note("clock", sidecar=watcher.name, ahead=seconds)
        watcher.start().wait_ready(RECOVERY_SECONDS)
        fail_over(scene)
