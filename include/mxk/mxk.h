/* SPDX-License-Identifier: Apache-2.0
 *
 * C interface of mxk, for ctypes and other hosts. Thin over mxk/moe.h; no exception crosses it, nothing is printed.
 * Functions return an mxk_code (0 is ok); the text of a failure is mxk_last_error(): that of
 * this thread's last call, empty if it succeeded.
 */
#ifndef MXK_H
#define MXK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxk_engine mxk_engine;

typedef enum {
  MXK_OK = 0,
  MXK_BAD_ARGUMENT = 1,
  MXK_BAD_SHAPE = 2,
  MXK_BAD_DTYPE = 3,
  MXK_UNSUPPORTED_VARIANT = 4,
  MXK_UNSUPPORTED_CPU = 5,
  MXK_BACKEND_UNKNOWN = 6,
  MXK_OUT_OF_MEMORY = 7,
  MXK_CORRUPT_FILE = 8,
  MXK_IO = 9
} mxk_code;

typedef enum { MXK_F32 = 0, MXK_BF16 = 1 } mxk_dtype;

/* T tokens, k routes per token, E local experts, K hidden size, I intermediate size. */
typedef struct {
  int32_t T, k, E, K, I;
} mxk_shape;

/* One layer on one batch. Row-major, dense; the weight bytes may have any alignment and are only read. */
typedef struct {
  mxk_shape shape;
  const uint8_t* w13;       /* [E, 2I, K/2]  E2M1 pairs, low nibble = even element */
  const uint8_t* s13;       /* [E, 2I, K/32] E8M0 */
  const uint8_t* w2;        /* [E, K, I/2] */
  const uint8_t* s2;        /* [E, K, I/32] */
  const float* b13;         /* [E, 2I] or NULL */
  const float* b2;          /* [E, K] or NULL */
  const uint16_t* x;        /* bf16 [T, K] */
  const int32_t* topk_ids;  /* [T, k], global expert ids; those outside [first_expert, first_expert + E) are skipped */
  const void* topk_weights; /* [T, k] */
  int32_t weights_dtype;    /* mxk_dtype of topk_weights */
  int32_t first_expert;
  void* y;           /* [T, K], or [T, k, K] for per-route variants */
  int32_t out_dtype; /* mxk_dtype of y */
} mxk_call;

const char* mxk_version(void);
const char* mxk_last_error(void);

/* Would the accelerator limits of the variant table take this shape? */
mxk_code mxk_check(const char* variant, const mxk_shape* shape);

/* `max` bounds later calls. backend NULL or "": MXK_BACKEND, else the best this machine has. threads 0: one for
 * each CPU of the affinity mask. An engine has threads of its own and does not survive fork(). */
mxk_code mxk_engine_create(const char* variant, const mxk_shape* max, const char* backend, int32_t threads,
                           mxk_engine** out);
const char* mxk_engine_backend(const mxk_engine*);
/* Allocates nothing. Calls on one engine must not overlap. On failure y is unchanged. */
mxk_code mxk_engine_run(mxk_engine*, const mxk_call*);
void mxk_engine_destroy(mxk_engine*);

#ifdef __cplusplus
}
#endif
#endif
