# SPDX-License-Identifier: Apache-2.0


def mark_step(device_str="", sync=False):
    """Ends the lazy graph. Here every operator has run when it returns, so that nothing is left to do."""
