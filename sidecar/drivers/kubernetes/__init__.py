"""Observes Flink's leaders in Kubernetes ConfigMaps.

- `access`: the address of the API server, and the credentials. `api`: requests. `stream`: an open watch. `responses`: decoded answers.
- `configmap_names`: which ConfigMaps to read. `expectations`: when to list although the watch is silent.
- `driver`: the thread that implements `sidecar.ports.LeaderRetrievalDriver`.
- `finder`: finds clusters by labels. `scope`: the thread that watches those of one namespace, or of all. `scope_reports`: what it reports.
  `found_clusters`: what counts as a cluster, and how many are watched. `lapses`: when leases expire. `retries`: pauses of all drivers.
- `ledger`: independent of all that; writes a ConfigMap of its own. `events`: writes Events, where wanted.
- `plans`: FlinkDeployments and evictions, where wanted. `object_watch`: the threads that read them. `plan_objects`: decoded answers.
- `pods`: finds the pod of a leader's address, where wanted.

Load: while a leader renews its lease, one watch every four to five minutes and one list every ten seconds. Without a leader, a list and a
watch every 7 s, and every 1.5 s in the 20 s in which a lease may expire. Of found clusters: one watch for all,
and a small request every 7 s.

The `kubernetes` package reads kubeconfigs, in a child process. In our process it would cost 20 MiB, and its models as much again. Its
`Watch` and its informer lose events (a null value ends the stream, a 410 is an unrelated error, a server that is down gets thousands of
requests per second). Requests use urllib3, as the package does (docs/project/adr/0010-kubernetes-listener.md).
"""

from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.driver import KubernetesDriver
from sidecar.drivers.kubernetes.finder import KubernetesFinder

__all__ = ["Access", "KubernetesDriver", "KubernetesFinder"]
