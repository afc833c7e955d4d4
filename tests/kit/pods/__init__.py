"""A Kubernetes node with real pods on this machine: real kubelet, containerd, scheduler and controller-manager, in a sandbox."""
