// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer entry: any bytes either parse into tensors that can be read, or fail with a message.
#include <cstdint>
#include <cstdlib>

#include "ckpt/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mxk::ckpt::SafeTensors st;
  const mxk::Status s = mxk::ckpt::SafeTensors::parse(data, size, "fuzz", &st);
  if (s.ok() != s.message.empty()) std::abort();
  volatile uint8_t sink = 0;
  for (const mxk::ckpt::Tensor& t : st.tensors()) {
    if (st.find(t.name) != &t) std::abort();
    if (t.bytes) sink = static_cast<uint8_t>(t.data[0] + t.data[t.bytes - 1]);
  }
  (void)sink;
  return 0;
}
