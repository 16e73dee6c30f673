# SPDX-License-Identifier: Apache-2.0
#
# What an operator runs: parity_hpu.py, run_parity.sh and bench_moe.py, on the CPU and on an emulated card with the
# builds that build_sh.variants makes.
mxk_pytest(scripts_layer_test scripts_layer_test.py)
mxk_pytest(scripts_checkpoint_test scripts_checkpoint_test.py)
mxk_pytest(scripts_test scripts_test.py RUN_SERIAL ON)
if(TARGET standin_plugin_lazy)
  mxk_pytest(scripts_emu_test scripts_emu_test.py RUN_SERIAL ON FIXTURES_REQUIRED gaudi_builds ENVIRONMENT
             MXK_GAUDI_BUILDS=${PROJECT_BINARY_DIR}/gaudi MXK_STANDIN_LIB=${PROJECT_BINARY_DIR}/standin/lib
             MXK_STOCK_TPC_LIB=$<TARGET_FILE:fake_stock>)
endif()
