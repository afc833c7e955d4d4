"""What a step asks for: `sidecar.app.running` carries it out."""

from collections.abc import Iterable

from msgspec import Struct

from sidecar.core.alerting.alerting_step import Output, ReadSilences, Send
from sidecar.core.captures import Capture
from sidecar.core.failover.failover_events import KubernetesEvent
from sidecar.core.pictures import PictureRequest
from sidecar.core.quarantine import Quarantined
from sidecar.core.records import AnyRecord


class Append(Struct, frozen=True):
    """Write a record to the journal."""

    record: AnyRecord


class Publish(Struct, frozen=True):
    """Write a Kubernetes Event."""

    event: KubernetesEvent


class NamePod(Struct, frozen=True):
    """Find out which pod has the IP address `host`. The answer is a `PodNamed`."""

    cluster_id: str
    host: str


class Gather(Struct, frozen=True):
    """Capture evidence, after the journal has recorded the request."""

    capture: Capture


class TakePicture(Struct, frozen=True):
    """Ask Flink's REST server. The answer is a `PictureTaken`."""

    request: PictureRequest


Effect = Append | Send | Gather | Publish | NamePod | ReadSilences | TakePicture | Quarantined


def effects_of(outputs: Iterable[Output | AnyRecord]) -> list[Effect]:
    """The effects of what the alerting machine puts out: records are appended."""
    return [output if isinstance(output, Send | ReadSilences | Quarantined) else Append(output) for output in outputs]
