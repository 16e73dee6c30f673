# SPDX-License-Identifier: Apache-2.0
#
# The port of Kimi-K2.7: its loader, its installer on skeleton trees, and that its recipe says what its README says.
mxk_pytest(kimi_port_test kimi_port_test.py)
