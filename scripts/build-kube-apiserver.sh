#!/usr/bin/env bash
# Prints the folder in the user's cache that holds programs of Kubernetes for the tests. Where it is missing, they are made first: Kubernetes
# from Debian's source package `kubernetes` with Debian's Go, the others from Debian's packages. Nothing is installed. Either takes
# 4 to 7 minutes the first time, and 2 GB, which are given back.
#
#   build-kube-apiserver.sh         kube-apiserver and etcd
#   build-kube-apiserver.sh node    what a node with real pods needs besides: kubelet, kube-controller-manager, kube-scheduler, and in debian/
#                                   containerd, runc and the CNI plugins
set -euo pipefail
version=1.20.2
cache=${FLINK_HA_SIDECAR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flink-ha-sidecar}
what=${1:-apiserver}

say() { printf 'kubernetes %s: %s\n' "$what" "$*" >&2; }
die() { say "$*"; exit 1; }
case $what in
  apiserver) home=$cache/envtest-$version-2 programs=(kube-apiserver) packages=(etcd-server) otherwise=', or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd' ;;
  node) home=$cache/node-$version programs=(kubelet kube-controller-manager kube-scheduler) packages=(containerd runc containernetworking-plugins) otherwise='' ;;
  *) die "apiserver or node can be built" ;;
esac
# The folder appears when it is complete.
ready() { [ -x "$home/${programs[-1]}" ]; }

if ready; then echo "$home"; exit; fi
mkdir -p "$cache"
exec 9> "$cache/$what.lock"
flock -n 9 || { say "another process is building it: waiting"; flock -w 1800 9 || die "another process has been building for half an hour: end it"; }
if ready; then echo "$home"; exit; fi

for tool in apt-get dpkg-deb setpriv tar xargs; do
  command -v "$tool" > /dev/null || die "$tool is missing: build on Debian$otherwise"
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "$keyring is missing: run apt-get install debian-archive-keyring$otherwise"
rm -rf "$cache/.kubernetes-$what".*  # of builds that were killed: this one holds the lock
work=$(mktemp -d "$cache/.kubernetes-$what.XXXXXX")
running=
finish() {
  if [ -n "$running" ]; then
    kill -KILL -- "-$running" 2> /dev/null || true
    for _ in {1..50}; do kill -0 -- "-$running" 2> /dev/null && sleep 0.1 || break; done
  fi
  chmod -R u+w "$work"
  rm -rf "$work"
}
trap finish EXIT
# `timeout` signals this script, then its group: the second one must not end `finish`.
for signal in HUP INT TERM; do trap "trap '' HUP INT TERM; exit $((128 + $(kill -l $signal)))" "$signal"; done
# A process group of its own: all of it ends with this script, which hears signals meanwhile.
run() {
  set -m
  nice setpriv --pdeathsig KILL "$@" 9>&- < /dev/null &
  set +m
  running=$!
  local status=0
  wait "$running" || status=$?
  running=
  return $status
}
mkdir -p "$work"/{lists/partial,archives/partial,fetched,debian,bin,tmp}
export TMPDIR=$work/tmp

# An apt of our own: the system's packages, lists and sources stay as they are.
origin=(--format '$(REPO_URI)')
mirror=$({ apt-get indextargets "${origin[@]}" 'Origin: Debian' 'Label: Debian'; apt-get indextargets "${origin[@]}"; } 2> /dev/null | sed -n '/security/d;\|/debian/*$|p' | sed -n 1p)
[ -n "$mirror" ] || die "apt knows no Debian mirror: build on Debian$otherwise"
for kind in deb deb-src; do echo "$kind [signed-by=$keyring] $mirror bookworm main"; done > "$work/sources.list"
own_apt() {
  run apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$work/lists" \
    -o Dir::Cache="$work" -o APT::Sandbox::User="$(id -un)" "$@" >&2
}
say "fetching Debian's packages"
cd "$work/fetched"
own_apt update || die "apt-get could not read the package lists of $mirror"
own_apt download "${packages[@]}" golang-1.19-go golang-1.19-src || die "apt-get could not fetch ${packages[*]} and golang-1.19 from $mirror"
own_apt source --download-only kubernetes || die "apt-get could not fetch the source of kubernetes from $mirror"
for package in *.deb; do dpkg-deb -x "$package" "$work/debian"; done
source=$work/go/src/k8s.io/kubernetes
mkdir -p "$source"
tar -xf kubernetes_*.orig.tar.* -C "$source" --strip-components=1

# Kubernetes 1.20 builds with a newer Go in GOPATH mode only: everything it needs is vendored.
export GOROOT=$work/debian/usr/lib/go-1.19 GOPATH=$work/go GOCACHE=$work/cache GO111MODULE=off GOFLAGS='' GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0
PATH=$GOROOT/bin:$PATH
cd "$source"
package=k8s.io/kubernetes

# reflect2 calls reflect.mapiterinit as it was before Go 1.18. Built with a newer Go it writes to an arbitrary address when it encodes a map:
# the API server dies of the first custom resource.
reflect2=vendor/github.com/modern-go/reflect2
sed -i -e 's|^func mapiterinit(.*) \*hiter$|func mapiterinit(rtype, m unsafe.Pointer, it *hiter)|' \
  -e 's|^\t// rest fields are ignored$|\tt, h, buckets, bptr, overflow, oldoverflow unsafe.Pointer\n\tstartBucket uintptr\n\toffset uint8\n\twrapped bool\n\tB, i uint8\n\tbucket, checkBucket uintptr|' \
  $reflect2/unsafe_link.go
sed -i 's|mapiterinit(type2.rtype, \*(\*unsafe.Pointer)(obj))|newIterator(type2.rtype, *(*unsafe.Pointer)(obj))|' $reflect2/unsafe_map.go
printf '\nfunc newIterator(rtype, m unsafe.Pointer) *hiter {\n\tit := new(hiter)\n\tmapiterinit(rtype, m, it)\n\treturn it\n}\n' >> $reflect2/unsafe_map.go
grep -q 'newIterator(type2' $reflect2/unsafe_map.go || die "reflect2 is not as expected"

if [ "$what" = apiserver ]; then
  say "generating what the API server says of its own API"
  run go build -o "$work/bin/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  described=$(grep -rl --include='*.go' --exclude='*_test.go' --exclude='zz_generated*' '+k8s:openapi-gen=' pkg cmd plugin staging/src/k8s.io \
    | grep -v -e ^staging/src/k8s.io/code-generator/ -e ^pkg/generated/ | xargs -n1 dirname | sort -u \
    | sed -e "s|^staging/src/|$package/vendor/|;t" -e "s|^|$package/|" | paste -sd,)
  run "$work/bin/openapi-gen" --go-header-file hack/boilerplate/boilerplate.generatego.txt -i "$described" -p "$package/pkg/generated/openapi" \
    -O zz_generated.openapi -r "$work/violations" >&2
  rm "$work/bin/openapi-gen"
fi

say "building ${programs[*]}: some minutes"
flags='-s -w'
for place in component-base/version client-go/pkg/version; do
  for value in gitVersion=v$version gitMajor=1 gitMinor=20 gitTreeState=clean gitCommit=debian buildDate=2021-01-13T13:20:00Z; do
    flags+=" -X $package/vendor/k8s.io/$place.$value"
  done
done
# A node without cloud providers and Docker: smaller, and quicker to build.
tags=(); [ "$what" = apiserver ] || tags=(-tags 'providerless dockerless')
for program in "${programs[@]}"; do run go build -trimpath "${tags[@]}" -ldflags "$flags" -o "$work/bin/$program" "./cmd/$program"; done

case $what in
  apiserver) cp "$work/debian/usr/bin/etcd" "$work/bin/etcd" ;;
  node)
    rm -rf "$work"/debian/usr/{share,lib/go-1.19}
    mv "$work/debian" "$work/bin/debian" ;;
esac
rm -rf "$home"
mv "$work/bin" "$home"
say "ready: $home"
echo "$home"
