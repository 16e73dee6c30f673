// SPDX-License-Identifier: Apache-2.0
#include "tpc/emu/runtime.h"

#include <cstdarg>
#include <cstdio>
#include <memory>

#include "tpc/emu/intrinsics.h"

namespace mxk::emu {

namespace {

constexpr const char* kNames[] = {
#define X(name, slot, status, source) #name,
#include "tpc/emu/intrinsics.inc"
#undef X
};

Slots as_slots(const uint64_t* n) { return {n[LOAD], n[SPU], n[VPU], n[STORE]}; }

void add_marked(State& s) {
  for (int i = 0; i < kSlots; ++i) s.marked[i] += s.slots[i] - s.mark_start[i];
}

// A hook is not an instruction: its traps carry its own name.
[[noreturn]] void trap_hook(const char* hook, const char* rule) {
  Trap t;
  std::snprintf(t.message, sizeof t.message, "%s: %s", hook, rule);
  throw t;
}

State& launched(const char* hook) {
  if (current == nullptr) trap_hook(hook, "called outside a launch");
  return *current;
}

}  // namespace

constinit thread_local State* current = nullptr;

State::State(Launch* l) : launch(l) {
  std::memset(vectors, 0xFF, sizeof vectors);  // NaN in every format
  std::memset(scalars, 0xFF, sizeof scalars);
}

Scope::Scope(State* state) : before_(current) { current = state; }
Scope::~Scope() { current = before_; }

void trap(const char* format, ...) {
  Trap t;
  const int n = std::snprintf(t.message, sizeof t.message, "%s: ", kNames[static_cast<int>(current->op)]);
  va_list args;
  va_start(args, format);
  std::vsnprintf(t.message + n, sizeof t.message - static_cast<size_t>(n), format, args);
  va_end(args);
  throw t;
}

void trap_switches(int switches) { trap("switches 0x%x are not emulated", static_cast<unsigned>(switches)); }

void trap_no_launch(Op op) { trap_hook(kNames[static_cast<int>(op)], "called outside a launch"); }

int run(Launch* launch, void (*kernel)(const Launch& launch)) {
  std::unique_ptr<State> state;
  try {
    state = std::make_unique<State>(launch);
  } catch (const std::bad_alloc&) {
    std::snprintf(launch->message, sizeof launch->message, "launch: no memory for the state of a TPC");
    return 1;
  }
  const Scope scope(state.get());
  launch->message[0] = 0;
  int rc = 0;
  try {
    kernel(*launch);
    if (state->marking) trap_hook("mxk_emu_mark", "the kernel ended inside its marked part");
  } catch (const Trap& t) {
    std::snprintf(launch->message, sizeof launch->message, "%s", t.message);
    rc = 1;
  }
  launch->slots = as_slots(state->slots);
  launch->marked = as_slots(state->marked);
  launch->marked_units = state->units;
  return rc;
}

}  // namespace mxk::emu

using namespace mxk::emu;

void mxk_emu_local(uint32_t vectors) {
  State& s = launched("mxk_emu_local");
  if (vectors > kLocalVectors) {
    char rule[128];
    std::snprintf(rule, sizeof rule, "local memory is %u vectors (16 KB), the kernel asks for %u", kLocalVectors,
                  vectors);
    trap_hook("mxk_emu_local", rule);
  }
  s.declared = vectors;
}

void mxk_emu_mark(int on) {
  State& s = launched("mxk_emu_mark");
  if (s.marking == (on != 0)) trap_hook("mxk_emu_mark", on ? "the marked part began twice" : "no marked part to end");
  if (on)
    std::memcpy(s.mark_start, s.slots, sizeof s.slots);
  else
    add_marked(s);
  s.marking = on != 0;
}

void mxk_emu_units(uint32_t n) { launched("mxk_emu_units").units += n; }

int5 get_index_space_offset() {
  const State& s = issue(Op::get_index_space_offset);
  int5 r;
  for (int i = 0; i < 5; ++i) r[i] = s.launch->offset[i];
  return r;
}

int5 get_index_space_size() {
  const State& s = issue(Op::get_index_space_size);
  int5 r;
  for (int i = 0; i < 5; ++i) r[i] = s.launch->size[i];
  return r;
}

int5 i_i32_add(const int5& a, const int5& b, int dimmask, int switches, const int5& income, bool predicate,
               bool polarity) {
  issue(Op::i_i32_add, switches);
  if (dimmask & ~31) trap("dimension mask 0x%x has bits beyond dimension 4", static_cast<unsigned>(dimmask));
  int5 r = income;
  if (predicate == polarity) return r;
  const int5 sum = a + b;
  for (int i = 0; i < 5; ++i)
    if (dimmask >> i & 1) r[i] = sum[i];
  return r;
}

int5 set_indx(int value, const int5& ndx, int dimmask, int switches, bool predicate, bool polarity) {
  issue(Op::set_indx, switches);
  if (dimmask & ~31) trap("dimension mask 0x%x has bits beyond dimension 4", static_cast<unsigned>(dimmask));
  int5 r = ndx;
  if (predicate == polarity) return r;
  for (int i = 0; i < 5; ++i)
    if (dimmask >> i & 1) r[i] = value;
  return r;
}

int32_t mov_irf_dim(const int5& src, int8_t dim, int switches, int32_t income, bool predicate, bool polarity) {
  issue(Op::mov_irf_dim, switches);
  if (dim < 0 || dim > 4) trap("dimension %d is not one of 0..4", dim);
  return predicate == polarity ? income : src[dim];
}

uint32_t_pair_t u32_udiv_both(uint32_t a, uint32_t b, int switches, const uint32_t_pair_t& income, bool predicate,
                              bool polarity) {
  issue(Op::u32_udiv_both, switches, SW_DIV_MODE_BOTH);
  if (predicate == polarity) return income;
  if (b == 0) trap("division of %u by zero", a);
  return {a / b, a % b};
}

void aso(int switches, bool, bool) { issue(Op::aso, switches, SW_DEC | SW_VPU); }
void cache_flush(int switches, bool, bool) { issue(Op::cache_flush, switches); }
void cache_invalidate(int switches, bool, bool) { issue(Op::cache_invalidate, switches, SW_SB | SW_D | SW_LU); }
