// SPDX-License-Identifier: Apache-2.0
//
// The engines behind the CPU ops: made when they are first needed, kept for the life of the process, one for each
// variant, K, I, number of threads (at::get_num_threads) and MXK_BACKEND.
#pragma once

#include "mxk/types.h"

namespace mxk::ops {

// Calls of several threads take turns. Throws c10::Error with the message of the Status.
void run_call(const Call&);

}  // namespace mxk::ops
