"""What a step asks for: `sidecar.app.loop` carries it out."""

from msgspec import Struct

from sidecar.core.captures import Capture
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.failover.failover_events import KubernetesEvent
from sidecar.core.pictures import PictureRequest
from sidecar.core.quarantine import Quarantined
from sidecar.core.records import AnyRecord


class Append(Struct, frozen=True):
    """Write a record to the journal."""

    record: AnyRecord


class Send(Struct, frozen=True):
    """Send a delivery, after the journal has recorded that it is being sent."""

    delivery: Delivery


class Publish(Struct, frozen=True):
    """Write a Kubernetes Event."""

    event: KubernetesEvent


class NamePod(Struct, frozen=True):
    """Find out which pod has the IP address `host`. The answer is a `PodNamed`."""

    cluster_id: str
    host: str


class ReadSilences(Struct, frozen=True):
    """Read a document of silences. The answer is a `SilencesRead`."""

    document: str


class Gather(Struct, frozen=True):
    """Capture evidence, after the journal has recorded the request."""

    capture: Capture


class TakePicture(Struct, frozen=True):
    """Ask Flink's REST server. The answer is a `PictureTaken`."""

    request: PictureRequest


Effect = Append | Send | Gather | Publish | NamePod | ReadSilences | TakePicture | Quarantined
