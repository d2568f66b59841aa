#!/bin/sh
# Makes the base images from Debian's packages, for machines that reach no image registry: mmdebstrap, buildah and podman.
# $BUILD_OPTIONS are further options of `buildah build`.
set -eu
cd "$(dirname "$0")"
has() { podman image exists "localhost/nsq-base/$1"; }
if ! has debian; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    mmdebstrap --quiet --variant=minbase --include=ca-certificates trixie "$folder/debian.tar"
    podman import --quiet "$folder/debian.tar" localhost/nsq-base/debian
fi
for name in python postgres redis; do
    # shellcheck disable=SC2086
    has "$name" || buildah build --quiet --format docker --network host ${BUILD_OPTIONS:-} \
        --tag "localhost/nsq-base/$name" --file "$name.containerfile" .
done
