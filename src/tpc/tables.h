// SPDX-License-Identifier: Apache-2.0
//
// The constants that kernels read as a tensor: shuffle directions mostly. common.h names the rows.
#pragma once

#include <cstdint>

namespace mxk::tpc {

constexpr int kTableRows = 47;      // TABLE_ROWS of common.h
constexpr int kSelfcheckRows = 56;  // rows of the output of mxk_selfcheck, 64 fp32 each
void fill_tables(uint8_t* out);     // [kTableRows, 256]

// For kernels built with MXK_LUT: the two codes of each byte, low one first, as bf16.
constexpr int kLutElements = 512;
void fill_lut(uint16_t* out);

}  // namespace mxk::tpc
