// SPDX-License-Identifier: Apache-2.0
//
// For Python, which has no other way to these where only an op library is installed: the table of variants, what
// mxk_selfcheck has to give, and the torch that the library was built for.
#include <torch/version.h>

#include <string>

#include "mxk/moe.h"
#include "tpc/selfcheck.h"

#define MXK_EXPORT extern "C" __attribute__((visibility("default")))

MXK_EXPORT const char* mxk_variants_json() {
  static const auto& text = *new std::string(mxk::variants_json());
  return text.c_str();
}

// Read from the file before it is loaded.
extern "C" __attribute__((visibility("default"))) const char mxk_built_for[];
const char mxk_built_for[] = "mxk op library for torch " TORCH_VERSION;

// out: fp32 [56, 64]; tolerance: [56], the relative error allowed in each row.
MXK_EXPORT void mxk_expected_selfcheck(float* out, float* tolerance) {
  mxk::tpc::expected_selfcheck(out);
  for (int row = 0; row < mxk::tpc::kSelfcheckRows; ++row)
    tolerance[row] = static_cast<float>(mxk::tpc::selfcheck_tolerance(row));
}
