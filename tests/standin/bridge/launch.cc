// SPDX-License-Identifier: Apache-2.0
//
// Kernels on the stand-in's device, the way they go to a card: the kernel library is asked for its layouts and has the
// kernel instantiated, once for each geometry, as a recipe is compiled once; runs reuse the instance.
#include "launch.h"

#include <c10/util/Exception.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>

#include "tpc/host/executor.h"
#include "tpc/host/library.h"

namespace mxk::standin {
namespace {

namespace api = tpc_lib_api;

struct Device {
  std::unique_ptr<tpc::Library> library;
  std::string error;       // why it cannot be opened
  std::string no_kernels;  // why it has no kernels
};

Device open_it() {
  Device device;
  const char* path = std::getenv("GC_KERNEL_PATH");
  if (!path || !*path) {
    device.no_kernels = "GC_KERNEL_PATH was not set when the device was opened";
    return device;
  }
  struct stat file;
  if (stat(path, &file) != 0 || !S_ISREG(file.st_mode)) {
    device.error = std::string("Path is not a regular file: GC_KERNEL_PATH is '") + path + "'";
    return device;
  }
  if (const Status s = tpc::Library::open(path, &device.library); !s.ok())
    device.error = std::string("GC_KERNEL_PATH: ") + s.message;
  return device;
}

const Device& device() {
  static const auto& it = *new Device(open_it());  // kernels stay loaded until the process ends
  return it;
}

tpc::TensorSpec spec_of(const std::string& guid, const at::Tensor& t) {
  tpc::TensorSpec spec;
  switch (t.scalar_type()) {
    case c10::kByte: spec.type = api::DATA_U8; break;
    case c10::kBFloat16: spec.type = api::DATA_BF16; break;
    case c10::kInt: spec.type = api::DATA_I32; break;
    case c10::kFloat: spec.type = api::DATA_F32; break;
    default: TORCH_CHECK(false, guid, ": the stand-in has no tensors of ", t.scalar_type(), "; nothing was computed");
  }
  const auto sizes = t.sizes();
  spec.sizes.assign(sizes.rbegin(), sizes.rend());
  return spec;
}

void require(const Status& s) { TORCH_CHECK(s.ok(), s.message); }

const tpc::Instance& instance_of(const tpc::Node& node) {
  static std::mutex mutex;
  static auto& instances = *new std::map<std::string, tpc::Instance>;
  std::string key = node.guid + '\0' + std::string(node.params.begin(), node.params.end()) + '\0';
  for (const auto* specs : {&node.inputs, &node.outputs})
    for (const tpc::TensorSpec& spec : *specs) key += std::to_string(spec.type) + tpc::to_string(spec);
  const std::lock_guard lock(mutex);
  if (const auto it = instances.find(key); it != instances.end()) return it->second;
  std::vector<std::string> in, out;
  require(device().library->layouts(node, &in, &out));
  tpc::Instance instance;
  require(device().library->instantiate(node, &instance));
  return instances.emplace(std::move(key), std::move(instance)).first->second;
}

}  // namespace

void open_device() { TORCH_CHECK(device().error.empty(), "the device cannot be opened: ", device().error); }

// For the Python package, which opens the device before PyTorch makes the first tensor there.
extern "C" __attribute__((visibility("default"))) int mxk_standin_open_device(char* why, size_t size) {
  try {
    open_device();
  } catch (const c10::Error& e) {
    std::snprintf(why, size, "%s", e.what_without_backtrace());
    return 0;
  }
  return 1;
}

void require_mode(bool lazy, const std::string& op) {
  static const bool is_lazy = [] {
    const char* mode = std::getenv("PT_HPU_LAZY_MODE");
    return mode && std::string_view(mode) == "1";
  }();
  TORCH_CHECK(is_lazy == lazy, op, ": this is an op of the ", lazy ? "legacy" : "PT2",
              " interface, which works only with PT_HPU_LAZY_MODE=", lazy ? "1" : "0", "; nothing was computed");
}

void launch(const std::string& guid, at::TensorList inputs, at::TensorList outputs,
            const std::vector<uint8_t>& params) {
  open_device();
  TORCH_CHECK(device().library, guid, ": ", device().no_kernels, "; nothing was computed");
  tpc::Node node;
  node.guid = guid;
  node.params = params;
  std::vector<at::Tensor> dense;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const at::Tensor& t : inputs) {
    TORCH_CHECK(t.device().type() == c10::kHPU, guid, ": input ", in.size(), " is on ", t.device(),
                ", not on hpu; nothing was computed");
    node.inputs.push_back(spec_of(guid, t));
    in.push_back(dense.emplace_back(t.contiguous()).const_data_ptr());
  }
  for (const at::Tensor& t : outputs) {
    node.outputs.push_back(spec_of(guid, t));
    out.push_back(t.mutable_data_ptr());
  }
  tpc::RunOptions options;
  options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  require(tpc::run(instance_of(node), in, out, options));
}

}  // namespace mxk::standin
