// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cstdlib>
#include <system_error>

#include "core/pool.h"
#include "mxk/moe.h"

namespace mxk {

struct Engine::State {
  const Variant* variant;
  Shape max;
  Selection selection;
  std::unique_ptr<ThreadPool> pool;
  unsigned char* scratch = nullptr;
  size_t bytes = 0;
  ~State() { std::free(scratch); }
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

const Variant& Engine::variant() const { return *state_->variant; }
const Backend& Engine::backend() const { return *state_->selection.backend; }
const Selection& Engine::selection() const { return state_->selection; }
int Engine::threads() const { return state_->pool->threads(); }
ThreadPool& Engine::pool() { return *state_->pool; }
size_t Engine::scratch_bytes() const { return state_->bytes; }

Status Engine::create(const Variant& variant, const Shape& max, const EngineOptions& options,
                      std::unique_ptr<Engine>* out) {
  out->reset();
  if (options.threads < 0 || options.threads > 4096)
    return error(Code::bad_argument, "threads=" + std::to_string(options.threads) +
                                         " is not supported (0 for one per core, at most 4096); no engine was made");
  auto state = std::make_unique<State>();
  state->variant = &variant;
  state->max = max;
  if (Status s = select_backend(options.backend, &state->selection); !s.ok()) return s;
  const Backend& backend = *state->selection.backend;
  if (Status s = backend.table_limits ? check(variant, max) : check_shape(variant, max); !s.ok()) return s;
  const int threads = options.threads ? options.threads : available_threads();
  try {
    state->pool = std::make_unique<ThreadPool>(threads);
  } catch (const std::system_error& e) {
    return error(Code::out_of_memory, "cannot start " + std::to_string(threads) + " threads: " + e.what());
  }
  // Large scratch asks for huge pages: the stock baseline streams through tens of megabytes of it.
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t needed = backend.scratch_bytes(variant, max, threads), align = needed >= kHuge ? kHuge : 64;
  state->bytes = (needed + align) / align * align;  // at least one unit: aligned_alloc(0) may be null
  state->scratch = static_cast<unsigned char*>(std::aligned_alloc(align, state->bytes));
  if (!state->scratch)
    return error(Code::out_of_memory, "cannot allocate " + std::to_string(state->bytes) +
                                          " bytes of scratch for backend '" + backend.name + "'; no engine was made");
  if (align == kHuge) madvise(state->scratch, state->bytes, MADV_HUGEPAGE);  // advice: failure costs only speed
  out->reset(new Engine(std::move(state)));
  return {};
}

Status Engine::run(const Call& call) {
  const State& st = *state_;
  if (call.variant != st.variant)
    return error(Code::unsupported_variant,
                 "the call is for variant '" + std::string(call.variant ? call.variant->name : "(null)") +
                     "' but this engine was made for '" + st.variant->name + "'; y is unchanged");
  const Shape& s = call.shape;
  if (Status status = st.selection.backend->table_limits ? check(*st.variant, s) : check_shape(*st.variant, s);
      !status.ok())
    return status;
  const struct {
    const char* what;
    int value, limit;
  } bounds[] = {
      {"T", s.T, st.max.T}, {"k", s.k, st.max.k}, {"E", s.E, st.max.E}, {"K", s.K, st.max.K}, {"I", s.I, st.max.I}};
  for (const auto& b : bounds)
    if (b.value > b.limit)
      return error(Code::bad_shape, std::string(st.variant->name) + ": " + b.what + "=" + std::to_string(b.value) +
                                        " exceeds what this engine was made for (" + std::to_string(b.limit) +
                                        "); y is unchanged");
  if (s.T == 0) return {};
  const auto is_dtype = [](Dtype d) { return d == Dtype::f32 || d == Dtype::bf16; };
  if (!is_dtype(call.weights_dtype) || !is_dtype(call.out_dtype))
    return error(Code::bad_dtype, std::string(st.variant->name) +
                                      ": weights_dtype=" + std::to_string(int(call.weights_dtype)) +
                                      ", out_dtype=" + std::to_string(int(call.out_dtype)) +
                                      " must be 0 (f32) or 1 (bf16); y is unchanged");
  const Weights& w = call.weights;
  if (call.stage != Stage::both && !st.selection.backend->stages)
    return error(Code::bad_argument, std::string("backend '") + st.selection.backend->name +
                                         "' runs whole layers only, not one stage; nothing was computed");
  const bool w13 = call.stage != Stage::w2, w2 = call.stage != Stage::w13;
  if (!call.topk_ids || (w13 && (!w.w13 || !w.s13 || !call.x)) ||
      (w2 && (!w.w2 || !w.s2 || !call.topk_weights || !call.y)) || (w13 != w2 && !call.a))
    return error(Code::bad_argument, std::string(st.variant->name) + ": a required pointer is null; y is unchanged");
  if (call.first_expert < 0)
    return error(Code::bad_argument, std::string(st.variant->name) + ": first_expert=" +
                                         std::to_string(call.first_expert) + " is negative; y is unchanged");
  if ((w.b13 || w.b2) && !st.variant->bias)
    return error(Code::bad_argument,
                 std::string(st.variant->name) + ": this variant has no bias but one was given; y is unchanged");
  return st.selection.backend->run(call, {st.pool.get(), st.scratch, st.bytes});
}

}  // namespace mxk
