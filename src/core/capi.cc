// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <new>

#include "mxk/moe.h"
#include "mxk/mxk.h"

struct mxk_engine {
  std::unique_ptr<mxk::Engine> engine;
};

namespace {

thread_local std::string last_error;

static_assert(MXK_IO == static_cast<int>(mxk::Code::io) && MXK_BAD_DTYPE == static_cast<int>(mxk::Code::bad_dtype));

mxk_code report(mxk::Status status) {
  last_error = std::move(status.message);
  return static_cast<mxk_code>(status.code);
}

mxk_code fail(mxk::Code code, const char* message) { return report(mxk::error(code, message)); }

// Nothing may be thrown across the C boundary.
template <class F>
mxk_code guarded(F&& f) {
  try {
    return report(f());
  } catch (const std::bad_alloc&) {
    return fail(mxk::Code::out_of_memory, "out of memory");
  } catch (const std::exception& e) {
    return fail(mxk::Code::bad_argument, e.what());
  }
}

mxk::Shape shape_of(const mxk_shape& s) { return {s.T, s.k, s.E, s.K, s.I}; }

mxk::Status variant_of(const char* name, const mxk::Variant** out) {
  *out = name ? mxk::find_variant(name) : nullptr;
  if (*out) return {};
  return mxk::error(mxk::Code::unsupported_variant, "variant '" + std::string(name ? name : "(null)") + "' does not exist");
}

bool is_dtype(int32_t d) { return d == MXK_F32 || d == MXK_BF16; }
mxk::Dtype dtype_of(int32_t d) { return d == MXK_F32 ? mxk::Dtype::f32 : mxk::Dtype::bf16; }

}  // namespace

extern "C" {

const char* mxk_version(void) { return MXK_VERSION; }
const char* mxk_last_error(void) { return last_error.c_str(); }

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
    if (!is_dtype(c->weights_dtype) || !is_dtype(c->out_dtype))
      return mxk::error(mxk::Code::bad_dtype, "weights_dtype=" + std::to_string(c->weights_dtype) + " or out_dtype=" +
                                                  std::to_string(c->out_dtype) + " is neither MXK_F32 nor MXK_BF16; y is unchanged");
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
