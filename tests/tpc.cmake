# SPDX-License-Identifier: Apache-2.0
#
# Label tpc: the Gaudi 2 kernels, the emulation they run in, and the kernel library that hands them out.

# The emulation and its traps, with the emulation inside of the test.
foreach(name emu_test emu_trap_test)
  mxk_test(${name} LABELS tpc)
  target_link_libraries(${name} PRIVATE mxk_tpc_emu)
endforeach()

# The kernels. The unpacks that are not the default have libraries of their own, of one variant.
set(codes MXK_UNPACK=1)
set(lut MXK_LUT)
foreach(unpack codes lut)
  mxk_tpc_library(mxk_tpc_${unpack} MXK_TPC_VARIANT="glm" ${${unpack}})
  foreach(kernel mxk_w13x mxk_w2x mxk_w2x_f32)
    mxk_tpc_module(${kernel}_${unpack} ${kernel} ${${unpack}})
    mxk_embed(mxk_tpc_${unpack} ${kernel} $<TARGET_FILE:${kernel}_${unpack}> DEPENDS ${kernel}_${unpack})
  endforeach()
  foreach(kernel mxk_deq mxk_selfcheck)
    mxk_embed(mxk_tpc_${unpack} ${kernel} $<TARGET_FILE:${kernel}> DEPENDS ${kernel})
  endforeach()
endforeach()
mxk_test(tpc_kernel_test LABELS tpc)
target_sources(tpc_kernel_test PRIVATE ${PROJECT_SOURCE_DIR}/src/tpc/selfcheck.cc ${PROJECT_SOURCE_DIR}/src/tpc/tables.cc)
target_compile_definitions(tpc_kernel_test PRIVATE MXK_TPC_LIBRARY="$<TARGET_FILE:mxk_tpc>"
                                                   MXK_TPC_LIBRARY_CODES="$<TARGET_FILE:mxk_tpc_codes>"
                                                   MXK_TPC_LIBRARY_LUT="$<TARGET_FILE:mxk_tpc_lut>")
add_dependencies(tpc_kernel_test mxk_tpc mxk_tpc_codes mxk_tpc_lut)

# The example of a kernel that a port adds, in a library as build.sh --extra-kernel makes it.
set(example ${PROJECT_SOURCE_DIR}/examples/dsv41_sinkhorn)
mxk_tpc_module(dsv41_sinkhorn ../../examples/dsv41_sinkhorn/dsv41_sinkhorn)
mxk_tpc_library(mxk_tpc_sinkhorn MXK_TPC_VARIANT="dsv41" MXK_EXTRA_KERNELS="${example}/glue.inc")
mxk_embed(mxk_tpc_sinkhorn dsv41_sinkhorn $<TARGET_FILE:dsv41_sinkhorn> DEPENDS dsv41_sinkhorn)
mxk_test(sinkhorn_test LABELS tpc)
target_compile_definitions(sinkhorn_test PRIVATE MXK_TPC_LIBRARY="$<TARGET_FILE:mxk_tpc_sinkhorn>")
add_dependencies(sinkhorn_test mxk_tpc_sinkhorn)

# Their sources: only what is emulated, and what a C compiler takes.
set(sources ${CMAKE_CURRENT_SOURCE_DIR}/tpc_sources_test.py)
add_test(NAME tpc_sources_test COMMAND Python3::Interpreter ${sources})
add_test(NAME tpc_sources_test.self_test COMMAND Python3::Interpreter ${sources} --self-test)
set_tests_properties(tpc_sources_test tpc_sources_test.self_test PROPERTIES LABELS tpc)
find_program(MXK_CLANG clang-19)
if(MXK_CLANG)
  add_test(NAME tpc_c_test COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tpc_c_test.py ${MXK_CLANG})
  set_tests_properties(tpc_c_test PROPERTIES LABELS tpc)
else()
  message(STATUS "mxk: no clang-19, so no test that a C compiler takes the kernels")
endif()

# The kernel library, with fake kernels in place of the emulated ones and fake stock libraries to pass calls on to. The
# code that passes them on is x86-64 assembly.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  return()
endif()
add_library(fake_kernel MODULE fake_kernel.cc)
add_library(fake_stock SHARED fake_stock.cc)
add_library(fake_stock_old SHARED fake_stock.cc)
target_compile_definitions(fake_stock_old PRIVATE FAKE_STOCK_OLD)
foreach(library fake_kernel fake_stock fake_stock_old)
  target_include_directories(${library} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${library} PRIVATE mxk_rules)
endforeach()

# mxk_glue(TARGET MAP DEFINITION kernel...): a kernel library of these kernels that shows what MAP says.
function(mxk_glue target map definition)
  set(src ${PROJECT_SOURCE_DIR}/src)
  add_library(${target} SHARED ${src}/glue/entry_points.cc ${src}/glue/kernels.cc ${src}/glue/stock.cc
                               ${src}/core/variant.cc ${src}/tpc/kernels.cc ${src}/tpc/tables.cc)
  target_link_libraries(${target} PRIVATE mxk_tpc_rules Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_definitions(${target} PRIVATE MXK_VERSION="${PROJECT_VERSION}" ${definition})
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
  foreach(kernel ${ARGN})
    mxk_embed(${target} ${kernel} $<TARGET_FILE:fake_kernel> DEPENDS fake_kernel)
  endforeach()
endfunction()

set(map ${CMAKE_CURRENT_BINARY_DIR}/pass.map)
set(passthrough ${PROJECT_SOURCE_DIR}/src/glue/passthrough.py)
add_custom_command(
  OUTPUT pass.S pass.map
  COMMAND Python3::Interpreter ${passthrough} $<TARGET_FILE:fake_stock_old> --asm pass.S --map pass.map --nm ${CMAKE_NM}
  DEPENDS fake_stock_old ${passthrough}
  VERBATIM)
mxk_glue(glue_all ${map} MXK_TPC_EMULATION ${MXK_TPC_KERNELS})
target_sources(glue_all PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/pass.S ${map})
mxk_glue(glue_glm ${PROJECT_SOURCE_DIR}/src/glue/exports.map MXK_TPC_VARIANT="glm" mxk_w13x mxk_w2x mxk_deq mxk_selfcheck)

foreach(name glue_test glue_check_test host_test)
  mxk_test(${name} LABELS tpc)
  target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/tpc/tables.cc)
  target_compile_definitions(
    ${name} PRIVATE MXK_TEST_GLUE="$<TARGET_FILE:glue_all>" MXK_TEST_GLUE_GLM="$<TARGET_FILE:glue_glm>"
                    MXK_TEST_STOCK="$<TARGET_FILE:fake_stock>" MXK_TEST_KERNEL="$<TARGET_FILE:fake_kernel>")
  target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(${name} glue_all glue_glm fake_stock fake_kernel)
endforeach()
