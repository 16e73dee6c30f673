# SPDX-License-Identifier: Apache-2.0
#
# build.sh, with stand-ins for the compiler, the SDK, the stock library and the bridge.

# For every variant, and what the script refuses. Other tests load what the first builds, and ask for the fixture.
set(MXK_GAUDI_BUILDS ${PROJECT_BINARY_DIR}/gaudi)
set(python ${CMAKE_CURRENT_SOURCE_DIR}/standin/python)
set(environment
    MXK_TEST_GAUDI=${MXK_GAUDI_BUILDS} MXK_TEST_STOCK=$<TARGET_FILE:fake_stock> MXK_STANDIN_BUILD=${PROJECT_BINARY_DIR}
    MXK_STANDIN_LIB=${PROJECT_BINARY_DIR}/standin/lib PYTHONPATH=${python} PYTHONDONTWRITEBYTECODE=1)
add_test(NAME build_sh.variants COMMAND Python3::Interpreter -m pytest -q -p no:cacheprovider
                                        ${CMAKE_CURRENT_SOURCE_DIR}/build_sh_test.py)
add_test(NAME build_sh.rules COMMAND Python3::Interpreter -m pytest -q -p no:cacheprovider
                                     ${CMAKE_CURRENT_SOURCE_DIR}/build_sh_rules_test.py
                                     ${CMAKE_CURRENT_SOURCE_DIR}/build_sh_gates_test.py)
set_tests_properties(build_sh.variants build_sh.rules PROPERTIES LABELS torch ENVIRONMENT "${environment}")
set_tests_properties(build_sh.variants PROPERTIES FIXTURES_SETUP gaudi_builds)
mxk_test(sinkhorn_test NAME build_sh.sinkhorn LABELS torch
         ENVIRONMENT MXK_TEST_LIBRARY=${MXK_GAUDI_BUILDS}/dsv41-extra/libmxk_tpc.so
                     MXK_STOCK_TPC_LIB=$<TARGET_FILE:fake_stock>)
set_tests_properties(build_sh.sinkhorn PROPERTIES FIXTURES_REQUIRED gaudi_builds)
