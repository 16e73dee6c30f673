// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for the graph compiler: what it asks of a kernel library and does not accept, and how it runs a kernel.
// The libraries are the fake stock library, whose kernels break one rule each, and ours with fake_kernel.cc for every
// kernel.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <thread>

#include "glue_calls.h"
#include "tpc/host/executor.h"
#include "tpc/host/library.h"

namespace mxk::tpc {
namespace {

using test::KernelCall;

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

Library& fake() {
  static auto& l = *new std::unique_ptr<Library>;
  if (!l && !Library::open(MXK_TEST_STOCK, &l).ok()) std::abort();
  return *l;
}

Library& ours() {
  static auto& l = *new std::unique_ptr<Library>;
  setenv("MXK_STOCK_TPC_LIB", MXK_TEST_STOCK, 1);
  if (!l && !Library::open(MXK_TEST_GLUE, &l).ok()) std::abort();
  return *l;
}

TensorSpec spec_of(const test::Operand& o) { return {o.type, {o.sizes.rbegin(), o.sizes.rend()}}; }

Node node_of(const KernelCall& c, int32_t first_expert = 0) {
  Node n;
  n.guid = c.guid;
  for (const test::Operand& o : c.in) n.inputs.push_back(spec_of(o));
  n.outputs.push_back(spec_of(c.out));
  if (c.first_expert) {
    n.params.resize(sizeof first_expert);
    std::memcpy(n.params.data(), &first_expert, sizeof first_expert);
  }
  return n;
}

Node fault_node(const std::string& name) { return {name, {{api::DATA_U8, {100}}}, {{api::DATA_F32, {64}}}, {}, 24}; }

// ---- loading -------------------------------------------------------------------------------------------------------

TEST(Load, NamesWhatIsMissing) {
  std::unique_ptr<Library> l;
  Status s = Library::open(MXK_TEST_KERNEL, &l);
  EXPECT_EQ(s.code, Code::io);
  EXPECT_EQ(s.message,
            "kernel library without entry point GetKernelGuids, InstantiateTpcKernel, GetShapeInference, "
            "GetSuggestedManipulation; no kernel of it can be used");
  s = Library::open("/nowhere/lib.so", &l);
  EXPECT_EQ(s.code, Code::io);
  EXPECT_NE(s.message.find("/nowhere/lib.so"), s.message.npos);
  const std::vector<uint8_t> junk(1000, 'j');
  for (const auto& bytes : {std::span<const uint8_t>(junk), std::span<const uint8_t>()})
    EXPECT_EQ(Library::open(bytes, &l).code, Code::io);
  EXPECT_EQ(l, nullptr);
}

TEST(Load, BytesAreAsGoodAsAFile) {
  const std::vector<uint8_t> bytes = read_file(MXK_TEST_STOCK), other = read_file(MXK_TEST_GLUE_GLM);
  for (int again = 0; again < 3; ++again) {
    // Two at once, and again after both are gone: the number of a file must not make one be taken for the other.
    std::unique_ptr<Library> l, m;
    setenv("MXK_STOCK_TPC_LIB", MXK_TEST_STOCK, 1);
    ASSERT_TRUE(Library::open(bytes, &l).ok());
    ASSERT_TRUE(Library::open(other, &m).ok());
    EXPECT_EQ(l->guids().size(), test::kFakeCount);
    EXPECT_EQ(m->guids().size(), test::kFakeCount + 4);
    EXPECT_EQ(l->version(), test::kFakeVersion);
    EXPECT_NE(m->version(), test::kFakeVersion);
  }
}

TEST(Load, AnObjectThatStaysIsNotTakenForAnother) {
  std::shared_ptr<SharedObject> object;
  ASSERT_TRUE(SharedObject::open(read_file(MXK_TEST_STOCK), "it", &object).ok());
  Dl_info info;
  ASSERT_NE(dladdr(object->symbol("GetKernelGuids"), &info), 0);
  dlclose(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE));
  object.reset();
  ASSERT_TRUE(SharedObject::open(read_file(MXK_TEST_KERNEL), "another", &object).ok());
  EXPECT_NE(object->symbol("mxk_emu_run"), nullptr);
  EXPECT_EQ(object->symbol("GetKernelGuids"), nullptr);
}

// ---- instantiation -------------------------------------------------------------------------------------------------

TEST(Instantiate, RetriesUntilAllBuffersFit) {
  Instance in;
  const Status s = fake().instantiate(fault_node("fault_none"), &in);
  ASSERT_TRUE(s.ok()) << s.message;
  EXPECT_EQ(in.tries, 3);
  EXPECT_EQ(in.index_space, std::vector<uint64_t>{4});
  EXPECT_EQ(in.scalars, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(in.elf, std::vector<uint8_t>(100, 0x7F));
  ASSERT_EQ(in.aux.size(), 1u);
  EXPECT_EQ(in.aux[0].bytes, std::vector<uint8_t>(40, 5));
  EXPECT_EQ(in.aux[0].spec.sizes, std::vector<uint64_t>{10});
  ASSERT_TRUE(fake().instantiate(fault_node("fault_scratch"), &in).ok());
  EXPECT_EQ(in.tries, 2);
  EXPECT_TRUE(in.aux[0].bytes.empty());
  EXPECT_EQ(in.aux[0].spec.bytes(), 40u);
}

TEST(Instantiate, WhatTheGraphCompilerDoesNotAccept) {
  const std::pair<const char*, const char*> faults[] = {
      {"fault_rank", "index space of rank 0"},
      {"fault_empty_space", "index space of size 0 in dimension 0"},
      {"fault_gaps", "output 0 [64] dimension 0: the index space leaves gaps in it"},
      {"fault_uncovered", "output 0 [64] dimension 0: the index space does not cover it"},
      {"fault_pattern_dim", "mapped to a dimension that the index space has not"},
      {"fault_scalars", "33 scalars, more than 32"},
      {"fault_many_aux", "more than 16 auxiliary tensors"},
      {"fault_aux_bytes", "an auxiliary tensor [10] with a buffer of 10 bytes"},
      {"fault_same_aux", "auxiliary buffers are too small, but no other size is asked for"},
      {"fault_endless_elf", "InstantiateTpcKernel answers INSUFFICIENT_ELF_BUFFER"},
      {"fault_no_elf", "no kernel was handed over"},
      {"fault_overrun_aux", "wrote behind the end of a buffer"},
      {"fault_overrun_elf", "wrote behind the end of a buffer"},
  };
  for (const auto& [name, message] : faults) {
    Instance in;
    in.tries = -1;
    const Status s = fake().instantiate(fault_node(name), &in);
    EXPECT_EQ(s.code, Code::bad_argument) << name;
    EXPECT_TRUE(s.message.starts_with(std::string(name) + ": ")) << s.message;
    EXPECT_NE(s.message.find(message), s.message.npos) << s.message;
    EXPECT_TRUE(s.message.ends_with("; the node is not compiled")) << s.message;
    EXPECT_EQ(in.tries, -1) << "untouched";
  }
}

TEST(Instantiate, UnknownAndRefused) {
  Instance in;
  api::GlueCodeReturn code;
  EXPECT_EQ(fake().instantiate(fault_node("nobody"), &in).code, Code::unsupported_variant);
  Node n = node_of(test::call_of("mxk_w13x", test::shape_of("mxk_w13x")));
  n.inputs[0].sizes = {};
  EXPECT_EQ(ours().instantiate(n, &in).code, Code::bad_argument);
  n = node_of(test::call_of("mxk_w13x", test::shape_of("mxk_w13x")));
  ++n.inputs[1].sizes[0];
  EXPECT_EQ(ours().instantiate(n, &in, &code).code, Code::bad_shape);
  EXPECT_EQ(code, api::GLUE_INCOMPATIBLE_INPUT_SIZE);
  n.inputs[1].type = api::DATA_I32;
  EXPECT_EQ(ours().instantiate(n, &in, &code).code, Code::bad_dtype);
  EXPECT_EQ(code, api::GLUE_INCOMPATIBLE_DATA_TYPE);
  n.params.clear();
}

TEST(Instantiate, AllOfOurKernels) {
  const std::vector<uint8_t> elf = read_file(MXK_TEST_KERNEL);
  for (const std::string& name : test::all_kernels()) {
    SCOPED_TRACE(name);
    const KernelCall call = test::call_of(name, test::shape_of(name));
    Node n = node_of(call, 5);
    n.tpcs = 7;
    Instance in;
    const Status s = ours().instantiate(n, &in);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(in.tries, 3);
    EXPECT_EQ(in.elf, elf);
    EXPECT_EQ(in.index_space, std::vector<uint64_t>{name == "mxk_selfcheck" ? 1u : 7u});
    std::vector<int32_t> scalars;
    if (call.first_expert) scalars.push_back(5);
    if (const auto units = static_cast<int32_t>(test::units_of(name, test::shape_of(name))); units != 0) {
      scalars.push_back(units / 7);
      scalars.push_back(units % 7);
    }
    EXPECT_EQ(in.scalars, scalars);
    ASSERT_EQ(in.aux.size(), 1u);
    EXPECT_EQ(in.aux[0].spec.sizes, (std::vector<uint64_t>{256, kTableRows}));

    std::vector<std::string> inputs, outputs;
    ASSERT_TRUE(ours().layouts(n, &inputs, &outputs).ok());
    EXPECT_EQ(inputs, std::vector<std::string>(call.in.size()));
    EXPECT_EQ(outputs, std::vector<std::string>(1));
    std::vector<TensorSpec> shapes;
    ASSERT_TRUE(ours().infer_shapes(n, &shapes).ok());
    ASSERT_EQ(shapes.size(), 1u);
    EXPECT_EQ(shapes[0].sizes, n.outputs[0].sizes);
    EXPECT_EQ(shapes[0].type, n.outputs[0].type);
  }
}

TEST(Instantiate, ALibraryWithoutAnAnswer) {
  std::vector<std::string> in, out;
  std::vector<TensorSpec> shapes;
  EXPECT_FALSE(fake().layouts(fault_node("fault_none"), &in, &out).ok());
  EXPECT_FALSE(fake().infer_shapes(fault_node("fault_none"), &shapes).ok());
}

// ---- running -------------------------------------------------------------------------------------------------------

// The fault that fake_kernel.cc is told with first_expert.
enum Fault { kNone, kTrap, kLeaveHole, kOverlap };

struct Runner {
  explicit Runner(const std::string& name, Fault fault = kNone) {
    const Status s = ours().instantiate(node_of(test::call_of(name, test::shape_of(name)), fault), &in);
    EXPECT_TRUE(s.ok()) << s.message;
    const Node& n = in.node;
    for (const TensorSpec& spec : n.inputs) {
      inputs.emplace_back(spec.bytes());
      for (size_t i = 0; i < inputs.back().size(); ++i) inputs.back()[i] = static_cast<uint8_t>(i * 37 + i / 251);
      in_at.push_back(inputs.back().data());
    }
    output.resize(n.outputs[0].bytes());
    out_at.push_back(output.data());
  }
  Status operator()(const RunOptions& options) {
    std::fill(output.begin(), output.end(), uint8_t{0});
    return run(in, in_at, out_at, options, &stats);
  }
  bool right() const {
    for (size_t i = 0; i < output.size(); ++i)
      if (output[i] != inputs[0][i % inputs[0].size()]) return false;
    return true;
  }

  Instance in;
  std::vector<std::vector<uint8_t>> inputs;
  std::vector<uint8_t> output;
  std::vector<const void*> in_at;
  std::vector<void*> out_at;
  RunStats stats;
};

TEST(Execute, AnyNumberOfTpcsAndThreads) {
  for (const char* name : {"mxk_deq", "mxk_w13xib", "mxk_w2xr_f32"}) {
    Runner r(name);
    for (int tpcs : {1, 5, 23, 24, 25, 254})
      for (int threads : {1, 3}) {
        const Status s = r({.tpcs = tpcs, .threads = threads, .parallel = {}});
        ASSERT_TRUE(s.ok()) << s.message;
        EXPECT_TRUE(r.right());
        EXPECT_EQ(r.stats.tpcs, std::min(tpcs, 24));
        EXPECT_EQ(r.stats.total.store, r.in.node.outputs[0].elements());
        EXPECT_EQ(r.stats.total.spu, 24u);
        EXPECT_EQ(r.stats.total.load, 0u);
        EXPECT_EQ(r.stats.marked.store, r.in.node.outputs[0].elements());
        EXPECT_EQ(r.stats.total.vpu, 0u);
        EXPECT_GE(r.stats.busiest * static_cast<uint64_t>(r.stats.tpcs), r.stats.total.store);
        EXPECT_LE(r.stats.busiest, (24u + r.stats.tpcs - 1) / r.stats.tpcs * (r.stats.total.store / 24 + 1));
        EXPECT_EQ(r.stats.marked_units, 24u);
      }
  }
}

TEST(Execute, OnAPoolThatIsHandedIn) {
  Runner r("mxk_deq");
  std::vector<int> seen;
  RunOptions options;
  options.parallel = [&](int n, const std::function<void(int)>& f) {
    for (int i = n; i-- > 0;) {
      seen.push_back(i);
      f(i);
    }
  };
  ASSERT_TRUE(r(options).ok());
  EXPECT_TRUE(r.right());
  EXPECT_EQ(seen.size(), 24u);
}

TEST(Execute, ReportsTheTrapOfTheLowestTpc) {
  Runner r("mxk_w2x", kTrap);
  for (int threads : {1, 4}) {
    const Status s = r({.tpcs = 24, .threads = threads, .parallel = {}});
    EXPECT_EQ(s.code, Code::bad_argument);
    EXPECT_EQ(s.message, "mxk_w2x: TPC 5: told to at element 5");
  }
}

TEST(Execute, FindsElementsThatWereNeverWritten) {
  Runner r("mxk_w2xr", kLeaveHole);  // [2, 8, 4096], the last three
  const Status s = r({.tpcs = 24, .threads = 2, .parallel = {}});
  EXPECT_EQ(s.message,
            "mxk_w2xr: output element never written: output 0 [2, 8, 4096], first at [1, 7, 4093], 3 in all");
  EXPECT_EQ(std::vector<uint8_t>(r.output.end() - 6, r.output.end()), std::vector<uint8_t>(6, 0xFF)) << "poisoned";
  RunOptions options;
  options.poison = false;
  EXPECT_FALSE(r(options).ok());
  EXPECT_EQ(r.output.back(), 0);
}

TEST(Execute, TwoTpcsWriteOneElement) {
  Runner r("mxk_w2x", kOverlap);
  RunOptions options;
  const Status s = r(options);
  EXPECT_NE(s.message.find("written by two TPCs"), s.message.npos) << s.message;
  options.tpcs = 1;
  EXPECT_TRUE(r(options).ok()) << "the same TPC may write it twice";
}

TEST(Execute, RefusesWhatItCannotRun) {
  Runner r("mxk_deq");
  RunOptions options;
  for (int tpcs : {0, -1, 255}) {
    options.tpcs = tpcs;
    EXPECT_EQ(r(options).code, Code::bad_argument);
  }
  options = {};
  options.threads = 0;
  EXPECT_EQ(r(options).code, Code::bad_argument);
  options = {};
  r.in_at[0] = nullptr;
  EXPECT_NE(r(options).message.find("input 0 is null"), std::string::npos);
  r.in_at.pop_back();
  EXPECT_NE(r(options).message.find("called with 1 inputs and 1 outputs"), std::string::npos);
  Runner elf("mxk_deq");
  elf.in.elf = std::vector<uint8_t>(200, 1);
  EXPECT_EQ(elf(options).code, Code::io);
  elf.in.elf = read_file(MXK_TEST_STOCK);
  EXPECT_NE(elf(options).message.find("not an emulated one"), std::string::npos);
}

TEST(Execute, DividesTheLongestDimensionOfAnIndexSpace) {
  Runner r("mxk_deq");
  r.in.index_space = {24, 3, 2};
  EXPECT_TRUE(r({.tpcs = 8, .threads = 1, .parallel = {}}).ok());
  EXPECT_TRUE(r.right());
  EXPECT_EQ(r.stats.tpcs, 8);
}

TEST(Execute, ManyAtOnce) {
  std::vector<std::jthread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      Runner r("mxk_selfcheck");
      r.in.index_space = {24};
      good += r({}).ok() && r.right();
    });
  threads.clear();
  EXPECT_EQ(good, 8);
}

}  // namespace
}  // namespace mxk::tpc
