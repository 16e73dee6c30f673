#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Uses mxk from outside, as its users do.
#   consumer_test.sh static|shared|subdirectory BUILD_DIR CC CXX
# static installs BUILD_DIR; shared builds and installs a shared library; both are then used through find_package and
# through pkg-config. subdirectory adds the source tree to another project.
set -euo pipefail
mode=$1 build=$2 cc=$3 cxx=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
work=$build/consumer/$mode
rm -rf "$work/installed" "$work/prefix"

build_consumer() { # cmake-argument...
  cmake -G Ninja -S "$here" -B "$work/consumer" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" "$@"
  cmake --build "$work/consumer"
  ctest --test-dir "$work/consumer" --output-on-failure --no-tests=error
}

use_installed() {
  # Not where it was installed: the package files must not hold on to a path.
  mv "$work/installed" "$work/prefix"
  build_consumer -DCMAKE_PREFIX_PATH="$work/prefix"
  local pkgconfig libdir
  pkgconfig=$(dirname "$(find "$work/prefix" -name mxk.pc)")
  libdir=$(dirname "$pkgconfig")
  # shellcheck disable=SC2046  # the flags are words
  "$cc" "$here/consumer.c" -o "$work/pkgconfig_c" $(PKG_CONFIG_PATH=$pkgconfig pkg-config --cflags --libs mxk)
  LD_LIBRARY_PATH=$libdir "$work/pkgconfig_c"
  if [[ -e $work/prefix/bin/mxk ]]; then "$work/prefix/bin/mxk" variants; fi
}

case $mode in
  static)
    cmake --install "$build" --prefix "$work/installed"
    use_installed
    ;;
  shared)
    cmake -G Ninja -S "$source" -B "$work/mxk" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
      -DBUILD_SHARED_LIBS=ON -DMXK_BUILD_TOOLS=OFF -DMXK_BUILD_TESTS=OFF
    cmake --build "$work/mxk"
    cmake --install "$work/mxk" --prefix "$work/installed"
    use_installed
    ;;
  subdirectory)
    build_consumer -DMXK_SOURCE_DIR="$source"
    ;;
  *)
    echo "consumer_test.sh: unknown mode '$mode'" >&2
    exit 2
    ;;
esac
