"""THE table of the checks over Flink's own configuration, by name, in the order in which they are shown."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from sidecar.core.counted import counted
from sidecar.core.ha.finding import Finding, UnknownFact, passes, risk, unknown
from sidecar.core.pictures import ENDED, Picture
from sidecar.core.sanitize import clean

OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "storage_dir": (
        "high-availability.storageDir",
        "high-availability.zookeeper.storageDir",
        "recovery.zookeeper.storageDir",
    ),
    "checkpoint_dir": ("execution.checkpointing.dir", "state.checkpoints.dir", "state.backend.fs.checkpointdir"),
    "tolerate": ("high-availability.zookeeper.client.tolerate-suspended-connections",),
    "yarn_attempts": ("yarn.application-attempts",),
    "target": ("execution.target",),
    "type": ("high-availability.type", "recovery.mode", "high-availability"),
}
"""The options that are read, by our name: Flink's keys in the order in which Flink reads them. All other options are discarded."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class FlinkFacts(Struct, frozen=True, kw_only=True):
    """The facts from Flink's configuration folder."""

    options: Mapping[str, str] | UnknownFact
    """The options by the names of `OPTIONS`, without those that are not set."""
    masters: int | UnknownFact | None = None
    """JobManagers that the file `masters` lists; None: there is no such file."""
    contenders: int | UnknownFact = UnknownFact("nothing of the cluster was read")
    """JobManagers that contend for leadership now."""
    picture: Picture | UnknownFact = UnknownFact("Flink's REST server was not asked")
    """The answer of the leading REST server."""
    volumes: tuple[str, ...] = ()
    """The mount paths of the volumes that outlive the JobManagers' pods. Empty: there are none, or no pods."""
    on_demand: bool = False
    """Whether Flink itself starts TaskManagers, when a job needs them."""


_Options = Mapping[str, str]


def options_check(check: Callable[[_Options], Finding | None]) -> Callable[[FlinkFacts], Finding | None]:
    """A check over the options: UNKNOWN where they were not read."""

    def checked(facts: FlinkFacts) -> Finding | None:
        return unknown(facts.options.reason) if isinstance(facts.options, UnknownFact) else check(facts.options)

    return checked


def storage_dir(facts: FlinkFacts) -> Finding | None:
    """Whether every JobManager reaches the data that it recovers from."""
    if not isinstance(facts.options, UnknownFact) and "storage_dir" not in facts.options:
        return risk(
            "high-availability.storageDir is not set", f"set it {_SHARED}: no JobManager can recover a job without it"
        )
    return _shared(facts, "storage_dir", "a JobManager elsewhere finds no job")


def checkpoint_dir(facts: FlinkFacts) -> Finding | None:
    """Whether every JobManager and TaskManager reaches the checkpoints. Not set: they are in `high-availability.storageDir`."""
    return _shared(facts, "checkpoint_dir", "a job that is restored elsewhere finds no checkpoint")


def _shared(facts: FlinkFacts, name: str, otherwise: str) -> Finding | None:
    """Whether a folder is one that all machines share; None: it is not set."""
    if isinstance(facts.options, UnknownFact):
        return unknown(facts.options.reason)
    if not (place := facts.options.get(name)):
        return None
    key = OPTIONS[name][0]
    scheme = match[1].lower() if (match := _SCHEME.match(place)) else ""
    if scheme not in {"", "file"}:
        return passes(f"{key} is in {clean(scheme)}")
    path = "/" + place.partition(":")[2].lstrip("/") if scheme else place
    if volume := next((mount for mount in facts.volumes if f"{path}/".startswith(f"{mount.rstrip('/')}/")), None):
        return passes(f"{key} is on the volume at {clean(volume)}: {clean(place)}")
    return risk(
        f"{key} is a folder of this machine: {clean(place)}",
        f"set it {_SHARED}, unless a volume is mounted there that all JobManagers share: {otherwise}",
    )


_SHARED: Final = "to a folder in an object store or a distributed file system"


@options_check
def tolerate_suspended(options: _Options) -> Finding | None:
    """Whether a lost connection to ZooKeeper costs the leader its leadership at once."""
    if options.get("type", "").upper() != "ZOOKEEPER":
        return None
    if options.get("tolerate", "false").lower() == "true":
        return passes("leaders survive a lost connection to ZooKeeper until their session expires")
    return risk(
        "high-availability.zookeeper.client.tolerate-suspended-connections is false",
        "set it to true: else each server of ZooKeeper that is restarted, and each break in the network, restarts all jobs",
    )


@options_check
def yarn_attempts(options: _Options) -> Finding | None:
    """Whether YARN starts another JobManager."""
    attempts = options.get("yarn_attempts")
    if attempts is None and not options.get("target", "").startswith("yarn"):
        return None
    if attempts is None:
        return unknown(
            "yarn.application-attempts is not set: with high availability Flink asks for as many as YARN allows, and "
            "yarn.resourcemanager.am.max-attempts is not known here"
        )
    if not re.fullmatch(r"[0-9]{1,9}", attempts):
        return unknown(f"yarn.application-attempts is no number: {clean(attempts)}")
    if int(attempts) < 2:
        return risk(
            f"yarn.application-attempts is {attempts}",
            "raise it (and yarn.resourcemanager.am.max-attempts): YARN starts no other JobManager when this one fails",
        )
    return passes(f"yarn.application-attempts is {attempts}")


def masters(facts: FlinkFacts) -> Finding | None:
    """Whether all JobManagers of a standalone cluster run."""
    listed, contenders = facts.masters, facts.contenders
    if listed is None:
        return None
    if isinstance(listed, UnknownFact):
        return unknown(listed.reason)
    if isinstance(contenders, UnknownFact):
        return unknown(contenders.reason)
    text = f"the file masters lists {counted(listed, 'JobManager')}, and {contenders} contend for leadership"
    if listed == contenders:
        return passes(text)
    return risk(text, "start the JobManagers that are missing, or correct the file masters")


def task_managers(facts: FlinkFacts) -> Finding:
    """Whether jobs have anywhere to run."""
    picture = facts.picture
    if isinstance(picture, UnknownFact):
        return unknown(picture.reason)
    if picture.task_managers is None:
        return unknown("Flink's REST server did not say which TaskManagers are registered")
    registered = len(picture.task_managers) + picture.task_managers_beyond
    if registered:
        return passes(f"{counted(registered, 'TaskManager')} registered")
    waiting = sum(job.state not in ENDED for job in picture.jobs) + picture.jobs_beyond
    if facts.on_demand and not waiting:
        return passes("no TaskManager is registered, and no job needs one: Flink starts them on demand")
    without = f", and {counted(waiting, 'job')} cannot run" if waiting else ""
    return risk(
        f"no TaskManager is registered{without}",
        "start TaskManagers, and look into their logs for why they do not register: without one no job runs, before a failover or after it",
    )


FLINK_CHECKS: Final[Mapping[str, Callable[[FlinkFacts], Finding | None]]] = {
    "storage_dir": storage_dir,
    "checkpoint_dir": checkpoint_dir,
    "tolerate_suspended": tolerate_suspended,
    "yarn_attempts": yarn_attempts,
    "masters": masters,
    "task_managers": task_managers,
}
"""Each judges the facts of one moment. None: it does not apply to this cluster."""
