// SPDX-License-Identifier: Apache-2.0
//
// What the emulated kernels of a call issued: counts and a prediction from them, never a measurement.
#pragma once

#include "tpc/host/executor.h"

namespace mxk::tpc {

constexpr double kClockHz = 1.8e9;  // of a TPC, from the vector bf16 peak of a card: 11 TFLOPS / (24 TPCs x 128 x 2)

struct CallStats {
  RunStats w13, w2;
  // Time of both kernels if every slot of the busiest TPC's busiest unit took one cycle and nothing ever waited.
  double issue_seconds() const;
};

// Of the last call of the tpc-emu backend on this thread.
const CallStats& last_call();

}  // namespace mxk::tpc
