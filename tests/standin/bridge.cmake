# SPDX-License-Identifier: Apache-2.0
#
# The stand-in for the Habana PyTorch bridge: its two plugin libraries, named as the real ones and in standin/lib, and
# op libraries to test it with. `PYTHONPATH=tests/standin/python MXK_STANDIN_LIB=build/dev/standin/lib` is a Python that
# has the device "hpu".
set(bridge ${CMAKE_CURRENT_LIST_DIR}/bridge)
set(MXK_STANDIN_LIB ${PROJECT_BINARY_DIR}/standin/lib)
set(MXK_STANDIN_PYTHON ${CMAKE_CURRENT_LIST_DIR}/python)

function(mxk_standin_plugin target name source)
  add_library(${target} SHARED ${bridge}/device.cc ${bridge}/launch.cc ${bridge}/${source})
  target_link_libraries(${target} PRIVATE mxk_rules mxk PUBLIC mxk_libtorch)
  target_include_directories(${target} PRIVATE ${bridge} ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PUBLIC ${bridge}/include)  # its names are not ours
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${MXK_STANDIN_LIB}
                                             CXX_VISIBILITY_PRESET hidden BUILD_RPATH ${MXK_TORCH_ROOT}/lib)
endfunction()
mxk_standin_plugin(standin_plugin_lazy habana_pytorch_plugin legacy.cc)
mxk_standin_plugin(standin_plugin_pt2 habana_pytorch2_plugin pt2.cc)

# The op libraries of one variant, as build.sh makes them.
foreach(mode lazy pt2)
  set(target standin_op_${mode})
  mxk_op_library(${target} ${MXK_OP_SOURCES} core/variant.cc torch/${mode}.cc)
  target_link_libraries(${target} PRIVATE standin_plugin_${mode})
  target_compile_definitions(${target} PRIVATE MXK_TPC_VARIANT="glm")
  set_target_properties(${target} PROPERTIES OUTPUT_NAME mxk_op_${mode}
                                             LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/standin/op)
endforeach()

add_library(standin_broken_ops MODULE ${bridge}/broken_ops.cc)
target_link_libraries(standin_broken_ops PRIVATE mxk_rules standin_plugin_lazy)
add_library(standin_direct MODULE ${bridge}/direct.cc)
target_link_libraries(standin_direct PRIVATE mxk_rules mxk)
target_include_directories(standin_direct PRIVATE ${PROJECT_SOURCE_DIR}/src)
set_target_properties(standin_broken_ops standin_direct PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                                                   ${PROJECT_BINARY_DIR}/standin/op)

add_test(NAME standin_test COMMAND Python3::Interpreter -m pytest -q -p no:cacheprovider
                                   ${CMAKE_CURRENT_SOURCE_DIR}/standin_test.py)
set(environment PYTHONPATH=${MXK_STANDIN_PYTHON} PYTHONDONTWRITEBYTECODE=1 MXK_STANDIN_LIB=${MXK_STANDIN_LIB}
                MXK_STANDIN_OP=${PROJECT_BINARY_DIR}/standin/op MXK_STANDIN_KERNELS=$<TARGET_FILE:mxk_tpc>)
set_tests_properties(standin_test PROPERTIES LABELS torch ENVIRONMENT "${environment}")
