"""What stands in the ConfigMaps of Kubernetes, brought in as observations.

`access` is where the API server is and who we are there, `api` the requests to it, `stream` an open watch, `events` what was answered, in
our words. `places` knows which ConfigMaps to ask for, `expectations` how long silence may last, and what the stream still owes. `driver`
is the thread between them, and what it owes `sidecar.ports.LeaderRetrievalDriver`. `ledger` is apart from all that: it alone writes, to a
ConfigMap of its own.

What it asks for: while a leader renews its lease, a watch every four to five minutes and a list every ten seconds; while none does, a
list and a watch every 7 s, and every 1.5 s in the 20 s in which a lease may run out.

The `kubernetes` package reads kubeconfigs, in a child process. In ours it would cost 20 MiB, and its models as much again; its `Watch` and
its informer lose what they should keep (a null value ends the stream, a 410 is an unrelated error, a server that is down is asked
thousands of times in a second). Requests go through urllib3, as its own do (docs/adr/0010-kubernetes-listener.md).
"""

from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.driver import KubernetesDriver

__all__ = ["Access", "KubernetesDriver"]
