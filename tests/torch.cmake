# SPDX-License-Identifier: Apache-2.0
#
# Label torch: the PyTorch ops, build.sh and the scripts that operators run, on the CPU and on a stand-in for the card.
set(MXK_TORCH_TEST_ENVIRONMENT
    PYTHONPATH=${PROJECT_SOURCE_DIR}/python MXK_CLI=$<TARGET_FILE:mxk_cli> MXK_OP_LIBRARY=$<TARGET_FILE:mxk_op_cpu>
    PYTHONDONTWRITEBYTECODE=1)

# mxk_pytest(NAME FILE [property value...] [ENVIRONMENT VAR=value...])
function(mxk_pytest name file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "ENVIRONMENT")
  add_test(NAME ${name} COMMAND Python3::Interpreter -m pytest -q -p no:cacheprovider ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set_tests_properties(${name} PROPERTIES LABELS torch ENVIRONMENT "${MXK_TORCH_TEST_ENVIRONMENT};${arg_ENVIRONMENT}"
                                          ${arg_UNPARSED_ARGUMENTS})
endfunction()

mxk_pytest(torch_test torch_test.py)
add_test(NAME python_package_test COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/python_package_test.sh ${Python3_EXECUTABLE})
set_tests_properties(python_package_test PROPERTIES LABELS torch)

if(MXK_TPC_EMU AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  include(standin/bridge.cmake)
  include(build_sh.cmake)
endif()
include(scripts.cmake)
include(gaudi.cmake)
include(hook.cmake)
include(kimi_port.cmake)
