"""Whether high availability is real, before it is needed: facts of a deployment, and the checks that judge them.

- `finding`: what a check says. `kubernetes_facts`: what Kubernetes says of a deployment. `pod_checks` and `config_map_checks` are the
  checks over it. `results`: all checks for a cluster.
"""
