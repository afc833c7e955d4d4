#!/usr/bin/env bash
# Prints the name of a slim Debian base image in buildah's storage, for building and testing the images where no registry can be reached.
# Where it is missing, debootstrap makes it first from the Debian mirror that apt uses here: about a minute, 190 MB. Needs root.
set -euo pipefail
suite=bookworm

say() { printf 'base-image: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || die "debootstrap needs root: run this as root"
for tool in apt-get debootstrap buildah; do
  command -v "$tool" >/dev/null || die "$tool is missing; run: apt-get install debootstrap buildah"
done
origin=(--format '$(REPO_URI)' 'Origin: Debian' "Codename: $suite")
mirror=$(apt-get indextargets "${origin[@]}" 2>/dev/null | sed -n '1{p;q}')
[ -n "$mirror" ] || die "apt knows no mirror of Debian $suite: add it to apt's sources"
# The image keeps the mirror in its sources.list: another mirror makes another image.
image=localhost/flink-ha-sidecar-base:$suite-$(printf %s "$mirror" | sha256sum | head -c 12)

exists() { buildah images --quiet "$image" >/dev/null 2>&1; }
if exists; then echo "$image"; exit; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "debootstrap of Debian $suite: about a minute"
debootstrap --variant=minbase "$suite" "$work/root" "$mirror" >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; die "debootstrap failed"; }
# As Debian's own slim images: no documentation and no translations, now or later. Otherwise the sizes could not be compared.
cat >"$work/root/etc/dpkg/dpkg.cfg.d/docker" <<'EOF'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/info/*
EOF
rm -rf "$work"/root/var/{lib/apt/lists,cache/apt,log}/* "$work"/root/usr/share/{man,locale,info}/*
find "$work/root/usr/share/doc" -type f ! -name copyright -delete
container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null; rm -rf "$work"' EXIT
buildah copy --quiet "$container" "$work/root" / >/dev/null
buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --cmd /bin/bash "$container"
buildah commit --quiet "$container" "$image" >/dev/null
echo "$image"
