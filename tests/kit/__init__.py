"""What tests of several rooms share, each thing once.

- Flink: `fake_flink` writes what a cluster's JobManagers write; `znodes` and `config_maps` keep it, in memory and in a real store;
  `cluster` names its parts; `leaders` fail over in a real ZooKeeper.
- Recordings of real clusters: `zookeeper_recordings`, `configmap_recordings`.
- Servers: `zookeeper_ensemble`, `secured_zookeeper`, `kubernetes_server`, `s3_server`, `flink_rest_server` (with what a Flink
  answers of many jobs: `pictured_flink`), `prometheus`;
  `serving` starts and ends one.
- Between a client and its server: `relay`, `private_network`.
- Ours: `core_sidecar` (the pure core alone), `sidecar_process` (the command), `one_voice` (three of them), `driver_recorder` and
  `configmap_recorder` (a driver alone).
- `images` builds the container images and starts them.
- What nobody should write: `hostile`. What /metrics exposes: `metric_families`.
- Where alerts arrive: `receivers`. How long to wait: `waiting`.
"""
