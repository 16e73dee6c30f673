# SPDX-License-Identifier: Apache-2.0
#
# Label torch: the PyTorch ops, build.sh and the scripts that operators run, on the CPU and on a stand-in for the card.
if(MXK_TPC_EMU AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  include(standin/bridge.cmake OPTIONAL)
  include(build_sh.cmake OPTIONAL)
endif()
include(scripts.cmake OPTIONAL)
