// SPDX-License-Identifier: Apache-2.0
//
// What the emulation of one TPC keeps during a launch, and what every intrinsic does first: count itself and check its
// switches. Inside the emulation only; kernels do not see it.
#pragma once

#include "tpc/emu/abi.h"
#include "tpc/emu/types.h"

namespace mxk::emu {

enum class Op : uint16_t {
#define X(name, slot, status, source) name,
#include "tpc/emu/intrinsics.inc"
#undef X
};

enum Slot : uint8_t { LOAD, SPU, VPU, STORE, kSlots };

inline constexpr Slot kSlotOf[] = {
#define X(name, slot, status, source) slot,
#include "tpc/emu/intrinsics.inc"
#undef X
};

inline constexpr int kVector = 256;             // bytes
inline constexpr uint32_t kLocalVectors = 64;   // a kernel that uses lookups has 16 KB; no kernel here uses more
inline constexpr uint32_t kScalarLocal = 1024;  // bytes
inline constexpr int kNoTensor = -1;

struct Trap {
  char message[512];
};

struct State {
  explicit State(Launch* l);

  Launch* launch;
  Op op{};
  uint64_t slots[kSlots]{};
  bool marking = false;
  uint64_t marked[kSlots]{};
  uint64_t mark_start[kSlots]{};
  uint64_t units = 0;

  uint32_t declared = 0;  // vectors of local memory
  bool vector_written[kLocalVectors]{};
  alignas(16) uint8_t vectors[kLocalVectors * kVector];
  bool scalar_written[kScalarLocal / 4]{};
  uint8_t scalars[kScalarLocal];

  bool after_partial = false;  // the last tensor store was a partial one, of this size and offset
  int partial_size = 0, partial_offset = 0;
  int table = kNoTensor;
};

// The launch of this thread.
extern constinit thread_local State* current;

// Makes `state` the launch of this thread for as long as it lives.
class Scope {
 public:
  explicit Scope(State* state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  State* before_;
};

// Stops the kernel: throws a Trap whose message starts with the name of the intrinsic.
[[noreturn, gnu::format(printf, 1, 2)]] void trap(const char* format, ...);
[[noreturn, gnu::cold]] void trap_switches(int switches);
[[noreturn, gnu::cold]] void trap_no_launch(Op op);

inline State& issue(Op op) {
  State* s = current;
  if (s == nullptr) trap_no_launch(op);
  ++s->slots[kSlotOf[static_cast<int>(op)]];
  s->op = op;
  return *s;
}

inline State& issue(Op op, int switches, int allowed = 0) {
  State& s = issue(op);
  if (switches & ~allowed) trap_switches(switches);
  return s;
}

// A kernel of this signature run with a launch's arguments: tensor numbers first, then the scalars.
int run(Launch* launch, void (*kernel)(const Launch& launch));

}  // namespace mxk::emu
