// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <new>

#include "mxk/moe.h"
#include "mxk/mxk.h"

struct mxk_engine {
  std::unique_ptr<mxk::Engine> engine;
};

namespace {

// A plain array: a std::string here would allocate when a thread first uses it, and could fail to.
thread_local char last_error[512];

static_assert(MXK_IO == static_cast<int>(mxk::Code::io) && MXK_BAD_DTYPE == static_cast<int>(mxk::Code::bad_dtype));

mxk_code report(mxk::Code code, const char* message) {
  std::snprintf(last_error, sizeof last_error, "%s", message);
  return static_cast<mxk_code>(code);
}

// Nothing may be thrown across the C boundary.
template <class F>
mxk_code guarded(F&& f) {
  try {
    const mxk::Status status = f();
    return report(status.code, status.message.c_str());
  } catch (const std::bad_alloc&) {
    return report(mxk::Code::out_of_memory, "out of memory");
  } catch (...) {
    return report(mxk::Code::bad_argument, "unexpected failure");
  }
}

mxk::Shape shape_of(const mxk_shape& s) { return {s.T, s.k, s.E, s.K, s.I}; }

mxk::Status variant_of(const char* name, const mxk::Variant** out) {
  *out = name ? mxk::find_variant(name) : nullptr;
  if (*out) return {};
  return mxk::error(mxk::Code::unsupported_variant,
                    "variant '" + std::string(name ? name : "(null)") + "' does not exist");
}

mxk::Dtype dtype_of(int32_t d) { return static_cast<mxk::Dtype>(d); }  // Engine::run checks it
static_assert(MXK_F32 == static_cast<int>(mxk::Dtype::f32) && MXK_BF16 == static_cast<int>(mxk::Dtype::bf16));

}  // namespace

extern "C" {

const char* mxk_version(void) { return MXK_VERSION; }
const char* mxk_last_error(void) { return last_error; }

mxk_code mxk_check(const char* variant, const mxk_shape* shape) {
  return guarded([&]() -> mxk::Status {
    const mxk::Variant* v;
    if (mxk::Status s = variant_of(variant, &v); !s.ok()) return s;
    if (!shape) return mxk::error(mxk::Code::bad_argument, "shape is null");
    return mxk::check(*v, shape_of(*shape));
  });
}

mxk_code mxk_engine_create(const char* variant, const mxk_shape* max, const char* backend, int32_t threads,
                           mxk_engine** out) {
  return guarded([&]() -> mxk::Status {
    if (!out) return mxk::error(mxk::Code::bad_argument, "out is null");
    *out = nullptr;
    if (!max) return mxk::error(mxk::Code::bad_argument, "max is null");
    const mxk::Variant* v;
    if (mxk::Status s = variant_of(variant, &v); !s.ok()) return s;
    auto handle = std::make_unique<mxk_engine>();
    mxk::EngineOptions options{backend ? backend : "", threads};
    if (mxk::Status s = mxk::Engine::create(*v, shape_of(*max), options, &handle->engine); !s.ok()) return s;
    *out = handle.release();
    return {};
  });
}

const char* mxk_engine_backend(const mxk_engine* e) { return e ? e->engine->backend().name : ""; }

mxk_code mxk_engine_run(mxk_engine* e, const mxk_call* c) {
  return guarded([&]() -> mxk::Status {
    if (!e || !c) return mxk::error(mxk::Code::bad_argument, "engine or call is null");
    mxk::Call call;
    call.variant = &e->engine->variant();
    call.shape = shape_of(c->shape);
    call.weights = {c->w13, c->s13, c->w2, c->s2, c->b13, c->b2};
    call.x = c->x;
    call.topk_ids = c->topk_ids;
    call.topk_weights = c->topk_weights;
    call.weights_dtype = dtype_of(c->weights_dtype);
    call.first_expert = c->first_expert;
    call.y = c->y;
    call.out_dtype = dtype_of(c->out_dtype);
    return e->engine->run(call);
  });
}

void mxk_engine_destroy(mxk_engine* e) { delete e; }

}  // extern "C"
