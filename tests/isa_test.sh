#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Can the x86-64 library start on any x86-64 machine? Two rules, read from its objects:
#   - an object compiled with flags of its own (ISA) shows exactly one symbol and no inline function: were it to show a
#     copy of a common one, the linker might take that copy for every caller, machines without the ISA included;
#   - no other object has an instruction beyond the baseline: nothing encoded as VEX or EVEX, no AMX.
#
#   isa_test.sh ISA,ISA... OBJECT...       the objects of ISA are named ISA.cc.o
#   isa_test.sh --self-test CXX            does it see what it must see?
set -euo pipefail

# VEX and EVEX: the mnemonics in v (compilers emit no other), mask moves, BMI. AMX: the tile instructions.
foreign='({vex} )?(v[a-z0-9]+'
foreign+='|k(mov|ortest|test|and|andn|or|xor|xnor|not|add|unpck|shift[lr])[bwdq]+'
foreign+='|andn|bextr|bls(i|r|msk)|bzhi|mulx|pdep|pext|rorx|s(ar|hl|hr)x'
foreign+='|ldtilecfg|sttilecfg|tile[a-z0-9]+|tdp[a-z0-9]+)[lq]?'

# One line of complaint per rule that object $2 breaks as an "isa" or "baseline" object ($1); status 1 if any.
check_object() {
  local kind=$1 object=$2 found ok=0
  if [[ $kind == baseline ]]; then
    # Three columns separated by tabs: address, bytes, instruction.
    found=$(objdump -d --no-show-raw-insn "$object") || return 1
    found=$(grep -cE $'^ *[0-9a-f]+:\t'"$foreign"'( |$)|%[tyz]mm[0-9]' <<<"$found" || true)
    if [[ $found != 0 ]]; then
      echo "$object: $found instructions beyond the baseline" && ok=1
    fi
  else
    found=$(nm --defined-only "$object" | awk '$2 ~ /^[A-Zuvw]$/ {print $2 " " $3}' | c++filt)
    if grep -qE '^[uvwVW] ' <<<"$found"; then
      echo "$object: inline functions or variables that the linker may share:" && ok=1
      grep -E '^[uvwVW] ' <<<"$found"
    fi
    if [[ $(grep -c . <<<"$found" || true) != 1 ]]; then
      echo "$object: one global symbol expected, found:"$'\n'"${found:-(none)}" && ok=1
    fi
  fi
  return $ok
}

self_test() {
  local cxx=$1 dir status=0
  dir=$(mktemp -d)
  # shellcheck disable=SC2064  # now: dir is local
  trap "rm -rf '$dir'" EXIT
  # Compiles CODE and checks it as both kinds.
  expect() { # isa-verdict baseline-verdict flags code
    local kind verdict want
    # shellcheck disable=SC2086  # the flags are words
    "$cxx" -std=c++20 -O2 $3 -x c++ -c - -o "$dir/object.o" <<<"$4"
    for kind in isa baseline; do
      want=$1 && [[ $kind == baseline ]] && want=$2
      verdict=pass && check_object $kind "$dir/object.o" >/dev/null || verdict=fail
      if [[ $verdict != "$want" ]]; then
        echo "as $kind, expected $want, got $verdict: $3: $4" && status=1
      fi
    done
  }
  local add='void add(float* a, float* b) { for (int i = 0; i < 64; ++i) a[i] += b[i]; }'
  local shared='inline __attribute__((noinline)) void twice(float* a) { for (int i = 0; i < 64; ++i) a[i] *= 2; }'
  expect pass pass "" "$add"
  expect pass fail "-mavx2 -ftree-vectorize" "$add"
  expect pass fail "-mavx512f -ftree-vectorize -mprefer-vector-width=512" "$add"
  expect pass fail "-mavx" 'float half(float a) { return a / 2; }'
  expect pass fail "-mbmi2" 'unsigned long shift(unsigned long a, int n) { return a << n; }'
  expect fail pass "" "static $add"
  expect fail pass "" "$add void add2(float* a) { add(a, a); }"
  expect fail fail "-mavx2 -ftree-vectorize" "$shared void use(float* a) { twice(a); }"
  expect fail pass "" 'inline int counter; int* use() { return &counter; }'
  [[ $status == 0 ]] && echo "isa_test: self test passed"
  return $status
}

if [[ $1 == --self-test ]]; then
  self_test "$2"
  exit
fi

isas=",$1," && shift
status=0 isa_objects=0
for object; do
  name=$(basename "$object" .cc.o) kind=baseline
  [[ $isas == *",$name,"* ]] && kind=isa && isa_objects=$((isa_objects + 1))
  check_object $kind "$object" || status=1
done
expected=$(tr -cd , <<<"$isas" | wc -c)
if ((isa_objects != expected - 1 || $# <= isa_objects)); then
  echo "isa_test: $# objects, $isa_objects of them for ${isas//,/ }: some are missing" && status=1
fi
echo "isa_test: $# objects, $isa_objects with an instruction set of their own"
exit $status
