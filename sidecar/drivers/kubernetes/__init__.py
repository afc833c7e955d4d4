"""Observes Flink's leaders in Kubernetes ConfigMaps.

- `access`: the address of the API server, and the credentials. `api`: requests and open watches. `objects`: decoded answers.
- `list_watch`: the thread that lists, watches, and decides what each answer of the API server means. All others say what is listed, and
  what is made of it.
- `configmap_watch`: ConfigMaps with leaders. `expectations`: when to confirm the view, whether the watch is silent or delivers.
  `configmap_reports`: what counts as a cluster, and what was reported.
- `kubernetes_driver`: one cluster, a `sidecar.ports.LeaderRetrievalDriver`.
- `clusters_by_labels`: finds clusters, a `sidecar.ports.ClusterFinder`.
- `plan_watch`: FlinkDeployments, pods, Events and logs, where wanted; `makers` and `pod_reports` make observations of them, which
  `pod_objects` decodes. It also finds the pod of a leader's address.
- `kubernetes_ledger`: independent of all that; writes a ConfigMap of its own. `events`: writes Events, where wanted.

Load: while a leader renews its lease, one watch every four to five minutes and one list every ten seconds. Without a leader, a list and a
watch every 7 s, and when its lease expires. Of found clusters: one watch for all, and a small request every 7 s.

The `kubernetes` package reads kubeconfigs, in a child process. In our process it would cost 20 MiB, and its models as much again. Its
`Watch` and its informer lose events (a null value ends the stream, a 410 is an unrelated error, a server that is down gets thousands of
requests per second). Requests use urllib3, as the package does (docs/project/adr/0010-kubernetes-listener.md).
"""

from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.clusters_by_labels import KubernetesFinder
from sidecar.drivers.kubernetes.kubernetes_driver import KubernetesDriver

__all__ = ["Access", "KubernetesDriver", "KubernetesFinder"]
