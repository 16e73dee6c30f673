#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Gaudi libraries of one model family, inside the image that will serve it. Bash, g++ and Python only:
# serving images have no CMake. The Python helpers are in src/glue.
set -euo pipefail
shopt -u nullglob failglob
unset PYTHONSAFEPATH # the helpers import each other

usage() {
  cat <<'END'
usage: build.sh [--variant gptoss|glm|dsv41|muse|kimi] [--extra-kernel DIR]... [--pt2] OUT_DIR

Makes, for one model family and the software of this image:
  OUT_DIR/libmxk_tpc.so      its TPC kernels; every other kernel is passed on to the stock library
  OUT_DIR/libmxk_op_lazy.so  its PyTorch ops, for lazy mode
  OUT_DIR/libmxk_op_pt2.so   with --pt2: the same for eager mode and torch.compile
  OUT_DIR/MANIFEST           versions and sha256 sums, as JSON

  --variant NAME      default: gptoss
  --extra-kernel DIR  also the kernel of a port, from DIR/<guid>.c, glue.inc and op.cpp: see examples/dsv41_sinkhorn
  --pt2               not for gptoss, which serves in lazy mode, and not with --extra-kernel, whose ops are legacy ones

An OUT_DIR that exists is replaced if it is empty or an earlier build; it may not be a mount point. When something
fails, nothing is left behind.

Where other tools and libraries are than in a Gaudi image, these say so: TPC_CLANG, CXX, PYTHON, MXK_SDK_INCLUDE,
MXK_STOCK_TPC_LIB, MXK_BRIDGE_INCLUDE, MXK_BRIDGE_LIB.
END
}

die() { # line...
  printf 'build.sh: %s\n' "$1" >&2
  (($# == 1)) || printf '  %s\n' "${@:2}" >&2
  exit 1
}
misuse() { # message
  printf 'build.sh: %s; nothing was built\n\n' "$1" >&2
  usage >&2
  exit 2
}

# ---- arguments -------------------------------------------------------------------------------------------------------

variant=gptoss pt2= out=
extra_dirs=()
while (($#)); do
  case $1 in
    -h | --help) usage && exit ;;
    --variant | --extra-kernel)
      [[ $# -ge 2 && -n $2 && $2 != -* ]] || misuse "$1 needs a value"
      if [[ $1 == --variant ]]; then variant=$2; else extra_dirs+=("$2"); fi
      shift
      ;;
    --pt2) pt2=1 ;;
    -*) misuse "unknown option $1" ;;
    '') misuse "OUT_DIR is empty" ;;
    *) [[ -z $out ]] && out=$1 || misuse "there is one OUT_DIR, not also '$1'" ;;
  esac
  shift
done
[[ -n $out ]] || misuse "OUT_DIR is missing"
[[ -z $pt2 || $variant != gptoss ]] || misuse "--pt2 is not for gptoss: gpt-oss serves in lazy mode"
[[ -z $pt2 || ${#extra_dirs[@]} == 0 ]] || misuse "--pt2 is not with --extra-kernel: extra kernels have legacy ops only"

root=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
out=$(realpath -m -- "$out")
for i in "${!extra_dirs[@]}"; do extra_dirs[i]=$(realpath -m -- "${extra_dirs[i]}"); done

# ---- what has to be there --------------------------------------------------------------------------------------------

missing=()
lacks() { missing+=("$1"); }
readable() { # file: its absolute path, if there is such a file
  if [[ -f $1 && -r $1 ]]; then realpath -- "$1"; else return 1; fi
}
program() { # name or path: its absolute path, links as they are, because some programs go by the name they have
  local path
  path=$(command -v -- "$1") && [[ -f $path && -x $path ]] || return 1
  [[ $path == /* ]] || path=$PWD/$path
  printf %s "$path"
}

tpc_name=${TPC_CLANG:-/opt/habanalabs/bin/tpc-clang}
tpc_clang=$(program "$tpc_name") || lacks "the TPC compiler: no $tpc_name (TPC_CLANG names another)"
cxx=$(program "${CXX:-g++}") || lacks "a C++ compiler: no ${CXX:-g++} (CXX names another)"
if [[ -n $cxx ]] && ! "$cxx" -std=c++20 -x c++ -fsyntax-only - </dev/null 2>/dev/null; then
  lacks "a C++20 compiler: $cxx does not take -std=c++20 (CXX names another)"
fi
command -v nm >/dev/null || lacks "nm, of the package binutils"

sdk=${MXK_SDK_INCLUDE:-/usr/include/habanalabs}
header=$(readable "$sdk/tpc_kernel_lib_interface.h") && sdk=$(dirname -- "$header") ||
  lacks "the SDK's headers: no tpc_kernel_lib_interface.h in $sdk (MXK_SDK_INCLUDE names another folder)"
stock_default=$(sed -n 's/.*kStockDefault = "\(.*\)".*/\1/p' "$root/src/glue/stock.h")
stock_name=${MXK_STOCK_TPC_LIB:-$stock_default}
stock=$(readable "$stock_name") ||
  lacks "the stock TPC kernel library: no $stock_name (MXK_STOCK_TPC_LIB names another)"

# torch would look for the bridge, and that for a card, which an image that is being built does not have.
export TORCH_DEVICE_BACKEND_AUTOLOAD=0 PYTHONDONTWRITEBYTECODE=1
torch_version='' torch_root='' cxx11_abi='' bridge_include='' bridge_lib='' bridge_version='' python_version=''
if python=$(program "${PYTHON:-python3}"); then
  if found=$("$python" "$root/src/glue/find_torch.py" ${pt2:+--pt2}); then
    while IFS=$'\t' read -r key value; do
      case $key in
        missing) lacks "$value" ;;
        torch_version | torch_root | cxx11_abi | bridge_include | bridge_lib | bridge_version | python_version)
          printf -v "$key" %s "$value"
          ;;
      esac
    done <<<"$found"
  else
    lacks "a Python that can be asked for torch and the bridge: $python failed (PYTHON names another)"
  fi
else
  lacks "Python: no ${PYTHON:-python3} (PYTHON names another)"
fi

extras=() # guids
for dir in "${extra_dirs[@]}"; do
  sources=("$dir"/*.c)
  if [[ ${#sources[@]} != 1 || ! -f ${sources[0]} ]]; then
    [[ -f ${sources[0]} ]] && n=${#sources[@]} || n=0
    lacks "--extra-kernel $dir: exactly one <guid>.c, there are $n"
  else
    guid=$(basename -- "${sources[0]}" .c)
    [[ $guid =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || lacks "--extra-kernel $dir: '$guid' must be a name in C"
    extras+=("$guid")
  fi
  for file in glue.inc op.cpp; do
    [[ -f $dir/$file ]] || lacks "--extra-kernel $dir: no $file"
  done
done

((${#missing[@]} == 0)) || die "nothing was built, this is missing:" "${missing[@]}"

# ---- where it is built ----------------------------------------------------------------------------------------------

version=$(sed -n 's/^project(mxk VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
[[ -n $version ]] || die "no version in the project() line of $root/CMakeLists.txt; nothing was built"
"$python" "$root/src/glue/manifest.py" check "$out"
[[ ! -d $out || $(stat -c %m -- "$out") != "$out" ]] ||
  die "$out is a mount point, which cannot be replaced as a whole: name a folder in it; nothing was built"

work= made=
# Whatever happens: nothing is left that was not there, and an older OUT_DIR is where it was.
cleanup() {
  trap '' INT TERM HUP
  local job
  for job in $(jobs -p); do kill -TERM -- "-$job" 2>/dev/null || true; done
  wait 2>/dev/null || true
  [[ -z $work ]] || {
    [[ ! -e $work/old || -e $out ]] || mv -T -- "$work/old" "$out"
    rm -rf -- "$work"
  }
  # The folders that were made for it, as far as nobody else uses them.
  local folder=$parent
  while [[ -n $made && ($folder == "$made" || $folder == "$made"/*) ]] && rmdir -- "$folder" 2>/dev/null; do
    folder=$(dirname -- "$folder")
  done
}
trap cleanup EXIT
trap 'printf "build.sh: interrupted; nothing was built\n" >&2; exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

parent=$(dirname -- "$out")
first=$parent
while [[ ! -e $first ]]; do
  made=$first
  first=$(dirname -- "$first")
done
mkdir -p -- "$parent" && work=$(mktemp -d -- "$parent/.mxk-build.XXXXXX") ||
  die "cannot write to $parent; nothing was built"

# From here on no path of a source or a result has anything of this machine in it: tpc-clang puts its command line into
# the ELF file, and the version of the kernel library is made from those.
cd -- "$work"
mkdir new extra # `new` with the usual permissions, which the folder around it does not have
ln -s -- "$root/src" "$root/include" .
for i in "${!extras[@]}"; do ln -sfn -- "${extra_dirs[i]}" "extra/${extras[i]}"; done

# ---- running compilers -----------------------------------------------------------------------------------------------

width=$(nproc)
started=0
start() { # what command...: runs in the background, as many at once as there are processors
  local log=log.$((++started))
  compgen -G 'log.*.failed' >/dev/null && finish
  while (($(jobs -rp | wc -l) >= width)); do wait -n || true; done
  printf 'build.sh: %s failed; nothing was built\n' "$1" >"$log"
  # With job control it is a process group of its own, all of which can be ended: a compiler is several processes.
  set -m
  { "${@:2}" >>"$log" 2>&1 || mv "$log" "$log.failed"; } </dev/null &
  set +m
}
finish() { # waits for all that was started
  wait
  local failed=(log.*.failed)
  [[ -e ${failed[0]} ]] || return 0
  cat -- "${failed[@]}" >&2
  exit 1
}
say() { printf -- '-- %s\n' "$*"; }

# ---- kernels ---------------------------------------------------------------------------------------------------------

table=("$python" src/glue/kernel_table.py --cxx "$cxx" --variant "$variant" --stock "$stock" --json table.json)
flags=(-O2 -std=c++20 -fPIC -fvisibility=hidden -Wall -Wextra -pthread -I src -I include -I "$sdk"
  "-DMXK_TPC_VARIANT=\"$variant\"" "-DMXK_VERSION=\"$version\"" "-D_GLIBCXX_USE_CXX11_ABI=$cxx11_abi")
if ((${#extras[@]})); then
  printf '#include "extra/%s/glue.inc"\n' "${extras[@]}" >extra_kernels.inc
  table+=(--extra-rows extra_kernels.inc --extra-guids "${extras[@]}")
  flags+=('-DMXK_EXTRA_KERNELS="extra_kernels.inc"' -I .)
fi
guids=$("${table[@]}") || exit
mapfile -t guids <<<"$guids"

say "variant $variant: compiling ${guids[*]}"
for guid in "${guids[@]}"; do
  source=src/tpc/$guid.c
  [[ ! -e extra/$guid ]] || source=extra/$guid/$guid.c
  start "compiling the kernel $guid" "$tpc_clang" -march=gaudi2 -O2 -I src -I include -c "$source" -o "$guid.o"
done

# ---- libraries -------------------------------------------------------------------------------------------------------

object() { printf %s.o "${1//\//_}"; } # source
compile() { # flag... source
  local source=${*: -1}
  start "compiling $source" "$cxx" "${flags[@]}" "${@:1:$#-1}" -c "$source" -o "$(object "$source")"
}

torch_flags=(-isystem "$torch_root/include" -isystem "$torch_root/include/torch/csrc/api/include" -I "$bridge_include")
say "compiling the ops for torch $torch_version and the kernel library"
# The same as MXK_OP_SOURCES of cmake/torch.cmake.
op_sources=(src/torch/ops.cc src/torch/about.cc src/tpc/selfcheck.cc)
lazy_sources=(src/torch/lazy.cc)
for guid in "${extras[@]}"; do lazy_sources+=("extra/$guid/op.cpp"); done
pt2_sources=(${pt2:+src/torch/pt2.cc})
for source in "${op_sources[@]}" "${lazy_sources[@]}" "${pt2_sources[@]}"; do
  compile "${torch_flags[@]}" "$source"
done
both_sources=(src/core/variant.cc src/tpc/kernels.cc)
tpc_sources=(src/glue/entry_points.cc src/glue/kernels.cc src/glue/stock.cc src/tpc/tables.cc)
for source in "${both_sources[@]}" "${tpc_sources[@]}"; do compile "$source"; done
"$python" src/glue/passthrough.py "$stock" --asm pass.S --map pass.map
finish

for guid in "${guids[@]}"; do
  cat <<END
  .section .rodata
  .balign 64
  .globl mxk_kernel_${guid}_begin, mxk_kernel_${guid}_end
  .hidden mxk_kernel_${guid}_begin, mxk_kernel_${guid}_end
mxk_kernel_${guid}_begin:
  .incbin "$guid.o"
mxk_kernel_${guid}_end:
  .byte 0
END
done >embed.S
printf '  .section .note.GNU-stack, "", %%progbits\n' >>embed.S
for source in pass.S embed.S; do compile "$source"; done # apart from linking, where they would get names by chance
finish

objects() { # source...: into the array `linked`
  local source
  linked=()
  for source; do linked+=("$(object "$source")"); done
}
objects "${both_sources[@]}" "${tpc_sources[@]}" pass.S embed.S
start "linking libmxk_tpc.so" "$cxx" -shared -pthread -Wl,-z,defs -Xlinker --version-script -Xlinker pass.map \
  -o new/libmxk_tpc.so "${linked[@]}" -ldl
link_ops() { # library plugin source...
  objects "${@:3}" "${op_sources[@]}" "${both_sources[@]}"
  start "linking $1" "$cxx" -shared -pthread -o "new/$1" "${linked[@]}" -L "$torch_root/lib" -ltorch_cpu -lc10 \
    -L "$bridge_lib" "-l$2" -Xlinker -rpath -Xlinker "$bridge_lib"
}
op_libraries=(libmxk_op_lazy.so)
link_ops libmxk_op_lazy.so habana_pytorch_plugin "${lazy_sources[@]}"
if [[ -n $pt2 ]]; then
  op_libraries+=(libmxk_op_pt2.so)
  link_ops libmxk_op_pt2.so habana_pytorch2_plugin "${pt2_sources[@]}"
fi
finish

# ---- gates, and into its place ---------------------------------------------------------------------------------------

say "checking the list of kernels and the ops"
start "the check of the list of kernels" "$python" src/glue/gate_guids.py new/libmxk_tpc.so "$stock" table.json
for library in "${op_libraries[@]}"; do
  plugin=$bridge_lib/libhabana_pytorch_plugin.so
  [[ $library == *lazy* ]] || plugin=$bridge_lib/libhabana_pytorch2_plugin.so
  start "the check of the ops" "$python" src/glue/gate_ops.py "new/$library" "$plugin" table.json
done
finish
first_line() { "$@" --version 2>/dev/null | head -n 1; }
"$python" src/glue/manifest.py write new table.json . "$stock" \
  "mxk=$version" "tpc-clang=$(first_line "$tpc_clang")" "g++=$(first_line "$cxx")" "python=$python_version" \
  "torch=$torch_version" "habana-torch-plugin=$bridge_version"

trap '' INT TERM HUP
[[ ! -e $out ]] || mv -T -- "$out" old
mv -T -- new "$out"
printf 'built %s: %d kernels, libmxk_tpc.so %s MANIFEST in %s\n' "$variant" "${#guids[@]}" "${op_libraries[*]}" "$out"
