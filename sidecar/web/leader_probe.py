"""`/leader` and `/standby`: whether the JobManager beside this sidecar leads, for load balancers. 200 if so, else 503, and one line why."""

from http import HTTPStatus
from typing import Final

from sidecar.core.moment import Moment
from sidecar.core.views.leader_here import leader_here
from sidecar.core.views.snapshot import Snapshot
from sidecar.web import api_paths
from sidecar.web.answers import Answer, one_line

LEADER: Final = "/leader"
STANDBY: Final = "/standby"


def answer(path: str, query: str, snapshot: Snapshot, now: Moment) -> Answer:
    """The answer of either path. Raises ParameterError."""
    component, cluster_id = api_paths.leader_query(path, query)
    here = leader_here(snapshot, component, cluster_id, now)
    is_so = here.leads if path == LEADER else here.stands_by
    return one_line(HTTPStatus.OK if is_so else HTTPStatus.SERVICE_UNAVAILABLE, here.reason)
