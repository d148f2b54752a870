#!/usr/bin/env bash
# tests/fresh.sh [COMMIT [TARGET...]]: clone a commit (default: HEAD) where nothing of ours exists and run its commands (default: make test, make demo).
# The place: a mount namespace with empty /tmp, /var/tmp, /dev/shm and HOME, no caches of this user, a plain environment (this
# machine's way to the network and to packages stays), and what the system has under /etc.
#   FRESH_DIR        where the scratch folder is made (default: .cache of this checkout; 12 GB are used and removed again)
#   FRESH_PIP_CACHE  a folder of pip's downloads to use. It spares downloads and can hide no missing step: only what is asked for is taken from it.
#   TORCH_INDEX      PyTorch's index of CPU builds, as for make
#   PYTHON           the interpreter (default: python3)
set -euo pipefail

inside() { # SCRATCH PYTHON TARGET...: in the namespace if there is one
  local place=$1 python=$2 variable
  local -a environment=(HOME="$place/home" LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  for variable in TORCH_INDEX PIP_{INDEX_URL,EXTRA_INDEX_URL,FIND_LINKS,CERT,DEFAULT_TIMEOUT} SSL_CERT_FILE {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY CI; do
    [ -z "${!variable:-}" ] || environment+=("$variable=${!variable}")
  done
  [ ! -d "$place/pip" ] || environment+=(PIP_CACHE_DIR="$place/pip")
  [ -z "${FRESH_TMPDIR:-}" ] || environment+=(TMPDIR="$FRESH_TMPDIR")
  cd "$place/wmrl"
  shift 2
  for target in "$@"; do
    SECONDS=0
    echo "== make $target"
    env -i "${environment[@]}" make --no-print-directory PYTHON="$python" "$target" </dev/null || { echo "== make $target failed after $((SECONDS / 60)) min $((SECONDS % 60)) s"; exit 1; }
    echo "== make $target: $((SECONDS / 60)) min $((SECONDS % 60)) s"
  done
}

hidden() { # SCRATCH PYTHON TARGET...: empty what this machine has, then go on
  local scratch=$1 name folder
  local -a names=(var/tmp tmp)
  case $scratch in /var/tmp/*) names=(tmp var/tmp) ;; esac # the one that hides the scratch folder comes last
  mount --bind "$scratch/place" /mnt
  [ -z "${FRESH_PIP_CACHE:-}" ] || { mkdir -p "$FRESH_PIP_CACHE" /mnt/pip && mount --bind "$FRESH_PIP_CACHE" /mnt/pip; }
  for folder in ~/.cache ~/.local ~/.config; do
    [ ! -d "$folder" ] || [ -L "$folder" ] || mount -t tmpfs -o mode=0700 tmpfs "$folder"
  done
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  for name in "${names[@]}"; do mount --bind "$scratch/$name" "/$name"; done
  shift
  inside /mnt "$@"
}

case ${1:-} in --inside | --hidden) "${1#--}" "${@:2}"; exit ;; esac

root=$(cd "$(dirname "$0")/.." && pwd)
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(test demo)
# The interpreter itself: a shim would look for its versions in HOME.
python=$("${PYTHON:-python3}" -c 'import os, sys; print(os.path.realpath(sys.executable))')
mkdir -p "${FRESH_DIR:-$root/.cache}"
scratch=$(mktemp -d "${FRESH_DIR:-$root/.cache}/fresh.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
mkdir -p "$scratch"/{place/home,tmp,var/tmp}
chmod 1777 "$scratch"/{tmp,var/tmp}
git clone --quiet --no-hardlinks "$root" "$scratch/place/wmrl"
git -C "$scratch/place/wmrl" checkout --quiet --detach "$(git -C "$root" rev-parse --verify "${1:-HEAD}^{commit}")"

if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
  unshare --mount "$0" --hidden "$scratch" "$python" "${targets[@]}"
else
  echo "No mount namespace can be made here (that takes root): HOME and TMPDIR are empty folders, but /tmp itself is this machine's."
  [ -z "${FRESH_PIP_CACHE:-}" ] || { mkdir -p "$FRESH_PIP_CACHE" && ln -s "$(realpath "$FRESH_PIP_CACHE")" "$scratch/place/pip"; }
  FRESH_TMPDIR="$scratch/tmp" "$0" --inside "$scratch/place" "$python" "${targets[@]}"
fi
