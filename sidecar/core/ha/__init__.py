"""Whether high availability is real, before it is needed: facts of a deployment, and the checks that judge them.

- `finding`: what a check says. `kubernetes_facts`: what Kubernetes says of a deployment. `kubernetes_checks`: the table of checks over it;
  `pod_checks` and `config_map_checks` are the checks. `memory`: Flink's memory model.
"""
