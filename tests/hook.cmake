# SPDX-License-Identifier: Apache-2.0
#
# The hook that serves MoE layers with the kernels, around a method class of ours, around the real file of the trees in
# MXK_TEST_VLLM_GAUDI_TREES, and on an emulated card with the builds that build_sh.variants makes.
mxk_pytest(hook_test hook_test.py)
mxk_pytest(hook_decline_test hook_decline_test.py)
mxk_pytest(hook_family_test hook_family_test.py)
mxk_pytest(hook_real_tree_test hook_real_tree_test.py)
if(TARGET standin_plugin_lazy)
  mxk_pytest(hook_emu_test hook_emu_test.py RUN_SERIAL ON FIXTURES_REQUIRED gaudi_builds ENVIRONMENT
             MXK_GAUDI_BUILDS=${PROJECT_BINARY_DIR}/gaudi MXK_STANDIN_LIB=${PROJECT_BINARY_DIR}/standin/lib
             MXK_STOCK_TPC_LIB=$<TARGET_FILE:fake_stock>)
endif()
