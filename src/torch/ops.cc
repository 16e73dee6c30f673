// SPDX-License-Identifier: Apache-2.0
#include "torch/ops.h"

#include <ATen/Functions.h>
#include <torch/library.h>

#include <deque>

namespace mxk::ops {
namespace {

constexpr const char* kNamespace = "custom_op";

c10::ScalarType dtype(tpc::Element e) {
  switch (e) {
    case tpc::Element::u8: return c10::kByte;
    case tpc::Element::bf16: return c10::kBFloat16;
    case tpc::Element::i32: return c10::kInt;
    case tpc::Element::f32: return c10::kFloat;
  }
  return c10::ScalarType::Undefined;
}

std::string schema(const Kernel& kernel) {
  std::string s = std::string(kernel.name) + "(";
  for (const tpc::Operand& operand : kernel.inputs)
    s += std::string(s.back() == '(' ? "" : ", ") + "Tensor " + operand.name;
  for (std::string_view rest = kernel.parameters; !rest.empty();) {
    const std::string_view parameter = rest.substr(0, rest.find(','));
    s += ", int " + std::string(parameter);
    rest.remove_prefix(std::min(rest.size(), parameter.size() + 1));
  }
  return s + ") -> Tensor";
}

void check_types(const Kernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const tpc::Operand& operand = kernel.inputs[i];
    const at::Tensor& t = arguments[i].toTensor();
    TORCH_CHECK(t.scalar_type() == dtype(operand.type), kernel.name, ": ", operand.name, " must be ",
                tpc::to_string(operand.type), ", it is ", t.scalar_type(), "; nothing was computed");
    TORCH_CHECK(t.dim() == operand.rank(), kernel.name, ": ", operand.name, " must be ", operand.shape(), ", it has ",
                t.dim(), " dimensions; nothing was computed");
  }
}

// One tensor on the meta device is enough to make a call one of meta(), and its contents would be anything.
void check_devices(const Kernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  const at::Device device = arguments[0].toTensor().device();
  for (size_t i = 1; i < kernel.inputs.size(); ++i)
    TORCH_CHECK(arguments[i].toTensor().device() == device, kernel.name, ": ", kernel.inputs[i].name, " is on ",
                arguments[i].toTensor().device(), ", ", kernel.inputs[0].name, " on ", device,
                "; nothing was computed");
}

// The size of the output where sizes are symbols. Nothing is refused: the call itself will be checked.
std::vector<c10::SymInt> symbolic_output(const Kernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<c10::SymInt> letters(tpc::kLetters, 0);
  for (size_t i = 0; i < kernel.inputs.size(); ++i)
    for (uint32_t d = 0; d < kernel.inputs[i].rank(); ++d)
      if (const tpc::Size& size = kernel.inputs[i].dims[d]; size.gives_letter())
        letters[static_cast<size_t>(size.letter)] =
            arguments[i].toTensor().sym_size(d) * static_cast<int64_t>(size.over) / static_cast<int64_t>(size.times);
  std::vector<c10::SymInt> sizes;
  for (uint32_t d = 0; d < kernel.output.rank(); ++d) {
    const tpc::Size& size = kernel.output.dims[d];
    const auto pad = static_cast<int64_t>(size.pad);
    c10::SymInt n = static_cast<int64_t>(size.times);
    if (size.letter != tpc::Letter::none)
      n = n * letters[static_cast<size_t>(size.letter)] / static_cast<int64_t>(size.over);
    if (size.with != tpc::Letter::none) n = n * letters[static_cast<size_t>(size.with)];
    sizes.push_back(pad == 1 ? n : (n + (pad - 1)) / pad * pad);
  }
  return sizes;
}

bool symbolic(const Kernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < kernel.inputs.size(); ++i)
    if (arguments[i].toTensor().unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return true;
  return false;
}

const Kernel& kernel_of(const c10::OperatorHandle& op) {
  const std::string& full = op.schema().name();
  return *tpc::find_kernel(std::string_view(full).substr(full.find("::") + 2));
}

std::vector<c10::IValue> pop_arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  return torch::jit::pop(*stack, op.schema().arguments().size());
}

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Kernel& kernel = kernel_of(op);
  const std::vector<c10::IValue> arguments = pop_arguments(op, stack);
  check_devices(kernel, arguments);
  check(kernel, arguments);
  for (size_t i = 0; i < kernel.inputs.size(); ++i)
    TORCH_CHECK(arguments[i].toTensor().is_contiguous(), kernel.name, ": ", kernel.inputs[i].name,
                " must be contiguous; nothing was computed");
  stack->emplace_back(execute(kernel, arguments));
}

void meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Kernel& kernel = kernel_of(op);
  const std::vector<c10::IValue> arguments = pop_arguments(op, stack);
  check_devices(kernel, arguments);
  check_types(kernel, arguments);
  const auto options = arguments[0].toTensor().options().dtype(ops::dtype(kernel));
  const at::Tensor out = symbolic(kernel, arguments) ? at::empty_symint(symbolic_output(kernel, arguments), options)
                                                     : at::empty(check(kernel, arguments), options);
  stack->emplace_back(out);
}

// Two libraries for one device: recipes of the one would run for ops of the other. What was loaded second makes every
// call an error. (A library cannot fail to load: an exception there ends the process.)
void conflict(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(), ": a second mxk op library (", kLibrary,
              ") was loaded into this process, and there may be only one; nothing was computed. Start again with one.");
}

std::deque<torch::Library>& libraries() {
  static auto& all = *new std::deque<torch::Library>;  // registrations last as long as the process
  return all;
}

torch::Library& library(torch::Library::Kind kind, std::optional<c10::DispatchKey> key) {
  return libraries().emplace_back(kind, kNamespace, key, __FILE__, __LINE__);
}

bool define_all() {
  for (const Kernel& kernel : tpc::kernels())
    if (kernel.users != tpc::Users::extra) define(kernel.name);
  return true;
}
const bool defined = define_all();

}  // namespace

std::string name(const Kernel& kernel) { return std::string(kNamespace) + "::" + kernel.name; }

c10::ScalarType dtype(const Kernel& kernel) { return dtype(kernel.output.type); }

std::vector<int64_t> check(const Kernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  check_types(kernel, arguments);
  std::vector<std::vector<uint64_t>> kept;
  std::vector<tpc::Sizes> inputs;
  kept.reserve(kernel.inputs.size());
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const auto sizes = arguments[i].toTensor().sizes();
    inputs.emplace_back(kept.emplace_back(sizes.begin(), sizes.end()));
  }
  tpc::Letters letters;
  const tpc::Fault fault = tpc::bind(kernel, inputs, {}, &letters);
  TORCH_CHECK(fault.kind == tpc::Fault::none, fault.message);
  parameters(kernel, arguments);
  std::vector<int64_t> out;
  for (uint32_t d = 0; d < kernel.output.rank(); ++d)
    out.push_back(static_cast<int64_t>(kernel.output.dims[d].of(letters)));
  return out;
}

std::vector<int32_t> parameters(const Kernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<int32_t> values;
  std::string_view names = kernel.parameters;
  for (size_t i = kernel.inputs.size(); i < arguments.size(); ++i) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const int64_t value = arguments[i].toInt();
    TORCH_CHECK(value >= 0 && value <= INT32_MAX, kernel.name, ": ", name, "=", value,
                " must be 0 to 2147483647; nothing was computed");
    values.push_back(static_cast<int32_t>(value));
  }
  return values;
}

std::shared_ptr<void> node_parameters(const Kernel& kernel, c10::ArrayRef<c10::IValue> arguments, size_t* bytes) {
  const auto values = std::make_shared<std::vector<int32_t>>(parameters(kernel, arguments));
  *bytes = values->size() * sizeof(int32_t);
  return {values, values->data()};
}

bool define(const char* guid) {
  const Kernel* kernel = tpc::find_kernel(guid);
  TORCH_CHECK(kernel, guid, " is no kernel of this library: no row names it");
  const auto op = c10::Dispatcher::singleton().findSchema({name(*kernel), ""});
  torch::Library& device = library(torch::Library::IMPL, kDevice);
  if (op && op->hasKernelForDispatchKey(kDevice)) {
    device.impl(guid, torch::CppFunction::makeFromBoxedFunction<&conflict>());
    return false;
  }
  if (!op) {  // else it is there for another device
    library(torch::Library::FRAGMENT, std::nullopt).def(schema(*kernel).c_str());
    library(torch::Library::IMPL, c10::DispatchKey::Meta)
        .impl(guid, torch::CppFunction::makeFromBoxedFunction<&meta>());
  }
  device.impl(guid, torch::CppFunction::makeFromBoxedFunction<&run>());
  announce(*kernel);
  return true;
}

}  // namespace mxk::ops
