#!/bin/sh
# Installs Apptainer from Debian's packages into a folder, for tests and benchmarks: `sh scripts/apptainer.sh FOLDER`.
# Debian 12 has no package of it. The one of Debian's current distribution needs a newer C library, so that library is put
# beside it, and nothing of the system's own is replaced. Add FOLDER/bin to the PATH.
set -eu
folder=$1
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ ! -e "$folder/bin/apptainer" ] || exit 0

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

command -v apt-get >/dev/null && [ -e "$keys" ] || { echo "Apptainer is installed from Debian's packages" >&2; exit 1; }
missing=
for pair in patchelf:patchelf mksquashfs:squashfs-tools squashfuse_ll:squashfuse fusermount3:fuse3 newuidmap:uidmap; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
if [ -n "$missing" ]; then
    as_root apt-get update -qq
    # shellcheck disable=SC2086  # several packages
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove $missing >/dev/null
fi

# The mirror that this machine takes its own packages from.
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' | sed -n 's/^Debian \(.*debian\/\)$/\1/p' | head -n 1)
mirror=${DEBIAN_MIRROR:-$mirror}
[ -n "$mirror" ] || { echo "no mirror of Debian's packages: run \`apt-get update\`, or set DEBIAN_MIRROR" >&2; exit 1; }
work=$folder.part
rm -rf "$work"
mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
echo "deb [signed-by=$keys] $mirror sid main" >"$work/apt/sources.list"
: >"$work/apt/status"
# Lists and downloads of its own: the system's apt does not learn of these packages.
apt_here() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State="$work/apt" \
        -o Dir::State::lists="$work/apt/lists" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt" \
        -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User="$(id -un)" "$@"
}
apt_here update
(cd "$work/apt" && apt_here download apptainer libc6 libseccomp2 libsqlite3-0)
for package in "$work"/apt/*.deb; do
    dpkg-deb -x "$package" "$work/root"
done
rm -rf "$work/apt"
rm -rf "$folder"
mv "$work" "$folder"

# The program looks for its configuration and its other program relative to where
# it is itself, and so does the other one.
for prefix in "$folder/root/usr" "$folder/root/usr/lib"; do
    ln -s "$folder/root/etc" "$prefix/etc"
    mkdir -p "$prefix/var/lib/apptainer/mnt/session"
done
lib=$(dirname "$(find "$folder/root" -name 'libc.so.6' | head -n 1)")
loader=$(find "$lib" -name 'ld-linux*.so*' | head -n 1)
for program in "$folder/root/usr/bin/apptainer" "$(find "$folder/root" -path '*/apptainer/bin/starter')"; do
    patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$lib" "$program"
done
chmod -R a+rX "$folder"
mkdir -p "$folder/bin"
ln -s ../root/usr/bin/apptainer "$folder/bin/apptainer"
"$folder/bin/apptainer" --version
