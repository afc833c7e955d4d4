#!/usr/bin/env bash
# Runs a command in a sandbox with the network of a Kubernetes node: 198.18.0.1 on the bridge cni0, to which the pods are connected.
#
#   scripts/pods/sandbox.sh COMMAND…
#
# Namespaces of its own for network, mounts, processes, host name and IPC: no packet leaves it, no setting of this machine changes, and when
# the command ends, every process and container in it does too. The command finds a folder for its files in $SANDBOX, which is removed at the
# end, and in $SANDBOX_CGROUP the name of a cgroup for its containers. Needs root and cgroups v1.
set -euo pipefail

die() { printf 'pods: %s\n' "$*" >&2; exit 1; }

inside() {
  hostname flink-ha-pods
  mount --make-rshared /
  ip link set lo up
  # With an address of its own: otherwise the bridge takes those of the pods in turn, and they lose the node for seconds.
  ip link add cni0 address 02:00:c6:12:00:01 type bridge
  ip address add 198.18.0.1/16 dev cni0
  ip link set cni0 up
  ip address add 198.19.0.1/32 dev lo        # the Service `kubernetes`: with one such Service there is no need of kube-proxy
  ip route add default dev cni0              # clients look for a default route; it leads nowhere
  # The kubelet sets what belongs to the whole machine. It finds it set.
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
    kernel/keys/root_maxbytes=25000000; do
    file=$SANDBOX/${setting%=*}
    mkdir -p "${file%/*}"
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%=*}"
  done
  mkdir -p "$SANDBOX/log" "$SANDBOX/run"
  mount --bind "$SANDBOX/log" /var/log       # where the kubelet keeps the logs of containers
  mount -t tmpfs sandbox /run
  : >"$SANDBOX/resolv.conf"
  mount --bind "$SANDBOX/resolv.conf" /etc/resolv.conf
  printf '127.0.0.1 localhost\n198.18.0.1 flink-ha-pods\n' >"$SANDBOX/hosts"
  mount --bind "$SANDBOX/hosts" /etc/hosts
  "$@" &                                     # this shell is process 1, and reaps what loses its parent
  wait $!
}
if [ "${1:-}" = --inside ]; then shift; inside "$@"; exit; fi

[ $# -gt 0 ] || die "usage: scripts/pods/sandbox.sh COMMAND…"
[ "$(id -u)" = 0 ] || die "real pods need root: run this as root"
PATH=$PATH:/usr/sbin:/sbin
for tool in ip unshare; do command -v "$tool" >/dev/null || die "$tool is missing; run: apt-get install iproute2 util-linux"; done
[ -e /sys/fs/cgroup/memory/cgroup.procs ] \
  || die "Kubernetes 1.20 needs cgroups v1, and this machine has v2 only: start its kernel with systemd.unified_cgroup_hierarchy=0"
SANDBOX=$(mktemp -d "${TMPDIR:-/tmp}/flink-ha-pods.XXXXXX")
SANDBOX_CGROUP=${SANDBOX##*/}
export SANDBOX SANDBOX_CGROUP
leave() {
  for group in /sys/fs/cgroup/*/"$SANDBOX_CGROUP"; do
    for _ in $(seq 50); do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break; sleep 0.1; done
  done
  rm -rf --one-file-system "$SANDBOX"
}
trap leave EXIT
for controller in /sys/fs/cgroup/*/; do mkdir "$controller$SANDBOX_CGROUP" 2>/dev/null || :; done
for file in cpuset.cpus cpuset.mems; do
  [ ! -e "/sys/fs/cgroup/cpuset/$file" ] || cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$SANDBOX_CGROUP/$file"
done
unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc --propagation slave bash "$0" --inside "$@"
