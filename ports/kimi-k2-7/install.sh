#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the image that serves Kimi-K2.7 out of a stock vllm-gaudi one: run inside it, by the Dockerfile or by hand.
set -euo pipefail

usage() {
  cat <<'END'
usage: install.sh [--build | --check | --uninstall] [--root DIR]

Looks first whether the image is vllm-gaudi releases/v0.30.0 (its commits, and every line that the port relies on), and
writes nothing if it is not. Then it puts kimi_hpu into vllm_gaudi/ops and adds three short blocks to vllm-gaudi.

  --build      also builds the kernels, before vllm-gaudi is changed: build.sh --variant kimi
  --check      changes nothing; exit status 0 if this version is installed, and whole; says whether there are kernels
  --uninstall  gives back the files of vllm-gaudi byte for byte; the kernels stay
  --root DIR   the folder that holds vllm_gaudi/ and vllm/ (default: those of this Python)

KIMI_MXK_LIB is the folder of the kernels (default: /opt/gaudi-cookbook-kimi/mxk), PYTHON the interpreter (python3).
END
}
misuse() { # message
  printf 'install.sh: %s; nothing was done\n\n' "$1" >&2
  usage >&2
  exit 2
}

command='' root=()
while (($#)); do
  case $1 in
    -h | --help) usage && exit ;;
    --build | --check | --uninstall)
      [[ -z $command || $command == "$1" ]] || misuse "$command and $1 do not go together"
      command=$1
      ;;
    --root)
      [[ $# -ge 2 && $2 != -* ]] || misuse "--root needs a folder"
      root=(--root "$2")
      shift
      ;;
    *) misuse "unknown argument '$1'" ;;
  esac
  shift
done

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
lib=${KIMI_MXK_LIB:-/opt/gaudi-cookbook-kimi/mxk}
patch() { PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-python3}" "$here/patch.py" ${root[@]+"${root[@]}"} "$@"; }
say_kernels() {
  if [[ -f $lib/MANIFEST ]]; then
    echo "kernels: $lib"
  else
    echo "kernels: none at $lib; KIMI_MXK=1 keeps the stock op until install.sh --build or build.sh --variant kimi $lib"
  fi
}

case $command in
  --check)
    status=0
    patch --check || status=$?
    say_kernels
    exit "$status"
    ;;
  --uninstall) patch --uninstall ;;
  --build)
    [[ $lib == /* ]] || misuse "KIMI_MXK_LIB is $lib; it must be an absolute path"
    patch --dry-run >/dev/null # an image that the port does not fit is refused before the minutes that a build takes
    bash "$here/../../build.sh" --variant kimi "$lib"
    patch
    say_kernels
    ;;
  *)
    patch
    say_kernels
    ;;
esac
