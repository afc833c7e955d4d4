"""`alert preview`: what one recorded failover looks like at each destination, under today's configuration. Nothing is sent."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster.failover.causes import NOT_IDENTIFIED
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.moment import Timestamp, timestamp
from sidecar.core.records import EpisodeRecord
from sidecar.core.sanitize import clean
from sidecar.endpoints import Alertmanager, AppriseUrl, Endpoint, Slack
from sidecar.simulation.record_files import ReplayError
from sidecar.simulation.replay import Replay

LAST: Final = "last"


class PreviewedAlert(Struct, frozen=True):
    """One alert of a message to a service that gets alerts one by one."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    resolved: bool


class Preview(Struct, frozen=True):
    """One message to one destination."""

    at: Timestamp
    destination: str
    payload: str
    """What kind of payload the service gets."""
    reason: str
    key: str
    """Of the incident."""
    title: str
    body: str
    facts: tuple[tuple[str, str], ...]
    link: str | None
    alerts: tuple[PreviewedAlert, ...]
    """Those of an Alertmanager."""


def previews(replay: Replay, endpoints: Mapping[str, Endpoint], episode: str) -> Iterator[Preview]:
    """The messages of one failover in the order of time. `episode`: the beginning of its id, or LAST. Raises ReplayError."""
    episodes = replay.episodes()
    chosen = _choose([*episodes], episode)
    for delivery in replay.deliveries():
        if delivery.episode_id == chosen:
            yield _preview(_with_cause(delivery, episodes[chosen]), endpoints[delivery.destination])


def in_words(preview: Preview) -> Iterator[str]:
    """The message, a line each."""
    yield f"{preview.destination}: {preview.payload}"
    yield f"  at      {preview.at}"
    yield f"  reason  {preview.reason}"
    if preview.alerts:
        for alert in preview.alerts:
            labels = ", ".join(f'{name}="{value}"' for name, value in sorted(alert.labels.items()))
            yield f"  alert   {'resolved' if alert.resolved else 'firing'} {{{labels}}}"
            for name, text in alert.annotations.items():
                yield from _indented(f"{name}: {text}", " " * 10)
        return
    yield f"  key     {preview.key}"
    yield f"  title   {preview.title}"
    yield from _indented(preview.body, "    ")
    yield from (f"    {name}: {value}" for name, value in preview.facts)
    if preview.link:
        yield f"    {preview.link}"


def _indented(text: str, by: str) -> Iterator[str]:
    return (f"{by}{line}" for line in text.splitlines() if line)


def _choose(episodes: list[str], wanted: str) -> str:
    if not episodes:
        raise ReplayError("no failover is recorded there that has ended")
    if wanted == LAST:
        return episodes[-1]
    matching = {episode for episode in episodes if episode.startswith(wanted)}
    if len(matching) != 1:
        number = f"{len(matching)} failovers begin" if matching else "no failover begins"
        raise ReplayError(f"{number} with {clean(wanted)!r}: `episodes` lists them")
    return matching.pop()


def _with_cause(delivery: Delivery, recorded: EpisodeRecord | None) -> Delivery:
    """The delivery with the recorded cause. Transitions alone may not show it: they lack facts that the sidecar had observed."""
    if recorded is None or NOT_IDENTIFIED not in delivery.body:
        return delivery
    why = "\n".join(map(clean, recorded.facts))
    cause = clean(f"{recorded.cause} ({recorded.confidence} confidence)")
    return replace(
        delivery,
        body=delivery.body.replace(NOT_IDENTIFIED, why),
        facts=tuple((name, cause if name == "cause" else text) for name, text in delivery.facts),
        feed=tuple(replace(alert, annotations=_explained(alert.annotations, why, cause)) for alert in delivery.feed),
    )


def _explained(annotations: Mapping[str, str], why: str, cause: str) -> dict[str, str]:
    description = annotations["description"].replace(NOT_IDENTIFIED, why)
    return {**annotations, "description": description, "cause": cause}


def _preview(delivery: Delivery, endpoint: Endpoint) -> Preview:
    return Preview(
        timestamp(delivery.next_at),  # a replay has one clock
        delivery.destination,
        _payload(endpoint),
        delivery.reason.value,
        delivery.incident,
        delivery.title,
        delivery.body,
        delivery.facts,
        delivery.link,
        tuple(PreviewedAlert(alert.labels, alert.annotations, alert.ended > 0) for alert in delivery.feed),
    )


def _payload(endpoint: Endpoint) -> str:
    """Without anything of a URL but its scheme."""
    match endpoint:
        case AppriseUrl(service=service):
            return f"{service}:// through Apprise" if service else "not an Apprise URL"
        case Slack():
            return "a message of Slack's Web API"
        case Alertmanager():
            return "alerts for an Alertmanager's API, version 2"
    return "Alertmanager's webhook payload, version 4"
