#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# All checks of a build on this machine: errors against fp32 (PARITY) and, for a variant with mxk_deq, prefill (PREFILL);
# in a process of its own, calls that share a graph (SIG_DEVICE). Exit status 0 if every one passed.
set -uo pipefail

usage() {
  cat <<'END'
usage: run_parity.sh --variant NAME --lib BUILD [--checkpoint DIR [--layer N]] [--out DIR] [--device hpu|cpu|emu]
  --lib BUILD   what build.sh made; with --device cpu the folder of libmxk_op_cpu.so
  --out DIR     keeps the logs there (default: a new temporary folder, removed when all passed)
  other options are those of parity_hpu.py: --experts N, --tokens T,..., --seed S
PYTHON names the interpreter (default: python3).
END
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out='' variant='' options=()
while (($#)); do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --out | --variant)
      if (($# < 2)); then
        echo "run_parity.sh: $1 needs a value" >&2
        exit 2
      fi
      [[ $1 == --out ]] && out=$2 || variant=$2
      shift 2
      ;;
    --impl* | --json*)
      echo "run_parity.sh: $1 is not for this script, which runs several; parity_hpu.py takes it" >&2
      exit 2
      ;;
    *) options+=("$1") && shift ;;
  esac
done
if [[ -z $variant ]]; then
  usage >&2
  exit 2
fi

kept=$out
if [[ -z $out ]]; then
  out=$(mktemp -d) || exit 1
elif ! mkdir -p "$out"; then
  exit 1 # mkdir has said why
fi

lines=() failed=0
for impl in kernel sig; do
  log=$out/$variant-$impl.log
  "${PYTHON:-python3}" "$here/parity_hpu.py" --variant "$variant" --impl "$impl" ${options[@]+"${options[@]}"} 2>&1 |
    tee "$log"
  status=${PIPESTATUS[0]}
  case $status in
    0) # the bridge may say more when the process ends
      before=${#lines[@]}
      mapfile -t -O "$before" lines < <(grep -E "^\[$variant\] [A-Z_]+ PASS$" "$log")
      if ((${#lines[@]} == before)); then
        failed=1
        lines+=("[$variant] $impl: FAIL (nothing was judged), see $log")
      fi
      ;;
    2) # a wrong option, which would be wrong twice
      [[ -n $kept ]] || rm -r "$out"
      exit 2
      ;;
    *)
      failed=1
      lines+=("[$variant] $impl: FAIL (status $status), see $log")
      ;;
  esac
done

echo
printf '%s\n' "${lines[@]}"
if ((failed)); then exit 1; fi
if [[ -z $kept ]]; then rm -r "$out"; fi
