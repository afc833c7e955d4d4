"""THE table of the checks over Flink's own configuration, by name, in the order in which they are shown."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from sidecar.core.counted import counted
from sidecar.core.ha.finding import Finding, Unknown, passes, risk, unknown
from sidecar.core.sanitize import clean

OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "storage_dir": (
        "high-availability.storageDir",
        "high-availability.zookeeper.storageDir",
        "recovery.zookeeper.storageDir",
    ),
    "tolerate": ("high-availability.zookeeper.client.tolerate-suspended-connections",),
    "yarn_attempts": ("yarn.application-attempts",),
    "target": ("execution.target",),
    "type": ("high-availability.type", "recovery.mode", "high-availability"),
}
"""What is looked at, by our name: Flink's keys in the order in which Flink reads them. Everything else of the configuration is not kept."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class FlinkFacts(Struct, frozen=True, kw_only=True):
    """What Flink's configuration folder says."""

    options: Mapping[str, str] | Unknown
    """By the names of `OPTIONS`; those that are not set are absent."""
    masters: int | Unknown | None = None
    """JobManagers that the file `masters` lists; None: there is no such file."""
    contenders: int | Unknown = Unknown("nothing of the cluster was read")
    """JobManagers that contend for leadership now."""


_Options = Mapping[str, str]


def of_options(check: Callable[[_Options], Finding | None]) -> Callable[[FlinkFacts], Finding | None]:
    """A check over the options: UNKNOWN where they were not read."""

    def checked(facts: FlinkFacts) -> Finding | None:
        return unknown(facts.options.reason) if isinstance(facts.options, Unknown) else check(facts.options)

    return checked


@of_options
def storage_dir(options: _Options) -> Finding:
    """Whether every JobManager reaches the data that it recovers from."""
    if not (place := options.get("storage_dir")):
        return risk(
            "high-availability.storageDir is not set", f"set it {_SHARED}: no JobManager can recover a job without it"
        )
    scheme = match[1].lower() if (match := _SCHEME.match(place)) else ""
    if scheme in {"", "file"}:
        return risk(
            f"high-availability.storageDir is a folder of this machine: {clean(place)}",
            f"set it {_SHARED}, unless a volume is mounted there that all JobManagers share: a JobManager elsewhere finds no job",
        )
    return passes(f"high-availability.storageDir is in {clean(scheme)}")


_SHARED: Final = "to a folder in an object store or a distributed file system"


@of_options
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


@of_options
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
    if isinstance(listed, Unknown):
        return unknown(listed.reason)
    if isinstance(contenders, Unknown):
        return unknown(contenders.reason)
    text = f"the file masters lists {counted(listed, 'JobManager')}, and {contenders} contend for leadership"
    if listed == contenders:
        return passes(text)
    return risk(text, "start the JobManagers that are missing, or correct the file masters")


FLINK_CHECKS: Final[Mapping[str, Callable[[FlinkFacts], Finding | None]]] = {
    "storage_dir": storage_dir,
    "tolerate_suspended": tolerate_suspended,
    "yarn_attempts": yarn_attempts,
    "masters": masters,
}
"""Each judges the facts of one moment. None: it does not apply to this cluster."""
