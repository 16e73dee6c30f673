# SPDX-License-Identifier: Apache-2.0
#
# The Gaudi 2 kernels, emulated on the host: each kernel source becomes a shared object, all of them are embedded in the
# kernel library libmxk_tpc.so, as the card's ELF files are in the build for Gaudi, and that in libmxk, for tpc-emu.
include(src/glue/embed.cmake)

# The names of the kernels, from the table that the library has.
set(list ${PROJECT_SOURCE_DIR}/src/tpc/kernels.inc)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
file(READ ${list} rows)
string(REGEX MATCHALL "\nX\\(mxk_[a-z0-9_]+" rows "${rows}")
list(TRANSFORM rows REPLACE "\nX\\(" "" OUTPUT_VARIABLE MXK_TPC_KERNELS)

# Everything that is embedded goes without its symbols: they would be most of libmxk.
add_library(mxk_tpc_rules INTERFACE)
target_link_libraries(mxk_tpc_rules INTERFACE mxk_rules)
target_include_directories(mxk_tpc_rules INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(mxk_tpc_rules INTERFACE -fvisibility=hidden)

add_library(mxk_tpc_emu STATIC
  src/tpc/emu/address.cc src/tpc/emu/convert.cc src/tpc/emu/float.cc src/tpc/emu/fma.cc src/tpc/emu/integer.cc
  src/tpc/emu/memory.cc src/tpc/emu/move.cc src/tpc/emu/runtime.cc)
target_link_libraries(mxk_tpc_emu PUBLIC mxk_tpc_rules)
target_compile_options(mxk_tpc_emu PRIVATE ${MXK_KERNEL_OPTIONS})

# mxk_tpc_module(TARGET SOURCE [definition...]): one kernel source as a module for the emulation, tpc/TARGET.so. Not
# optimized: that takes ten times as long, and a call spends its time in the intrinsics, which are. Nor instrumented by
# sanitizers, which takes minutes for each kernel: all its accesses to memory are in the intrinsics too.
function(mxk_tpc_module target source)
  add_library(${target} MODULE ${PROJECT_SOURCE_DIR}/src/tpc/emu/kernel.cc)
  target_link_libraries(${target} PRIVATE mxk_tpc_emu)
  target_compile_definitions(${target} PRIVATE MXK_TPC_EMULATION MXK_KERNEL_SOURCE="tpc/${source}.c" ${ARGN})
  target_compile_options(${target} PRIVATE -O0 -fno-sanitize=all)
  target_link_options(${target} PRIVATE -s)
  set_target_properties(${target} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tpc)
endfunction()

# mxk_tpc_library(TARGET [definition...]): a kernel library, its kernels still to be embedded.
function(mxk_tpc_library target)
  list(TRANSFORM MXK_TPC_LIBRARY_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/src/)
  add_library(${target} MODULE ${MXK_TPC_LIBRARY_SOURCES})
  target_link_libraries(${target} PRIVATE mxk_tpc_rules Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_definitions(${target} PRIVATE MXK_TPC_EMULATION MXK_VERSION="${PROJECT_VERSION}" ${ARGN})
  set(exports ${PROJECT_SOURCE_DIR}/src/glue/exports.map)
  target_link_options(${target} PRIVATE -s -Wl,--version-script=${exports})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${exports})
endfunction()
set(MXK_TPC_LIBRARY_SOURCES glue/entry_points.cc glue/kernels.cc glue/stock.cc core/variant.cc tpc/kernels.cc tpc/tables.cc)

mxk_tpc_library(mxk_tpc)
foreach(kernel ${MXK_TPC_KERNELS})
  mxk_tpc_module(${kernel} ${kernel})
  mxk_embed(mxk_tpc ${kernel} $<TARGET_FILE:${kernel}> DEPENDS ${kernel})
endforeach()

set(MXK_TPC_SOURCES src/tpc/host/backend.cc src/tpc/host/executor.cc src/tpc/host/instantiate.cc
                    src/tpc/host/library.cc src/tpc/host/shared_object.cc)
