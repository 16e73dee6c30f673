// SPDX-License-Identifier: Apache-2.0
//
// The device "hpu" in host memory: allocator, device guard, and the aten operators that every tensor needs. All other
// operators run on CPU copies of their arguments.
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include "launch.h"

namespace mxk::standin {
namespace {

const c10::Device kDevice(c10::kHPU, 0);
const c10::Stream kStream(c10::Stream::DEFAULT, kDevice);  // there is only one

struct Memory : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    open_device();
    void* data = c10::alloc_cpu(n);
    return {data, data, &c10::free_cpu, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
};

// Stands in for the memory when a second plugin was loaded. (A library cannot fail to load: an exception there ends the
// process.)
struct NoMemory final : Memory {
  c10::DataPtr allocate(size_t) override {
    TORCH_CHECK(false,
                "libhabana_pytorch_plugin.so and libhabana_pytorch2_plugin.so are both in this process, and "
                "there may be only one; nothing was computed. Start again with the one for PT_HPU_LAZY_MODE.");
  }
};

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::kHPU> {
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return kStream; }
  c10::Stream getNewStream(c10::Device, int) const override { return kStream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return kStream; }
};

at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(size, c10::GetAllocator(c10::kHPU), c10::DispatchKeySet(c10::DispatchKey::HPU),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::kHPU),
                                           c10::DispatchKeySet(c10::DispatchKey::HPU), c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

c10::Scalar item(const at::Tensor& t) { return on_host(t).item(); }

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack, true); }

torch::Library& library(const char* ns) {
  // Registrations last as long as the process.
  return *new torch::Library(torch::Library::IMPL, ns, c10::DispatchKey::HPU, __FILE__, __LINE__);
}

bool set_up() {
  if (c10::impl::hasDeviceGuardImpl(c10::kHPU)) {
    c10::SetAllocator(c10::kHPU, new NoMemory, 1);
    return false;
  }
  c10::SetAllocator(c10::kHPU, new Memory);
  c10::impl::registerDeviceGuard(c10::kHPU, new Guard);
  torch::Library& aten = library("aten");
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_copy_from_and_resize", &copy_from_and_resize);
  aten.impl("_local_scalar_dense", &item);
  aten.impl("as_strided", &at::native::as_strided_tensorimpl);
  aten.impl("view", &at::native::view);
  aten.impl("_reshape_alias", &at::native::_reshape_alias);
  aten.impl("unfold", &at::native::unfold);
  aten.impl("resize_", &at::native::resize_);
  aten.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  aten.impl("set_.source_Tensor", &at::native::set_tensor_);
  library("_").fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  return true;
}
const bool first = set_up();

}  // namespace

at::Tensor on_host(const at::Tensor& t) {
  if (t.device().is_cpu()) return t;
  return at::from_blob(const_cast<void*>(t.const_data_ptr()), t.sizes(), t.strides(),
                       t.options().device(c10::kCPU).requires_grad(false));
}

}  // namespace mxk::standin
