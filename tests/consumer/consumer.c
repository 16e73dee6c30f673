/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface from outside: one token through one expert of 32 x 32 whose output is known by hand.
 */
#include <mxk/mxk.h>
#include <stdio.h>
#include <string.h>

enum { K = 32, I = 32 };

int main(void) {
  /* Even x are 1, odd x are 0, so that only the low nibbles count. */
  uint16_t x[K];
  for (int i = 0; i < K; ++i) x[i] = i % 2 ? 0 : 0x3F80;
  uint8_t w13[2 * I * K / 2], s13[2 * I], w2[K * I / 2], s2[K];
  memset(w13, 0x42, sizeof w13 / 2);                  /* gate: 1 and 2, so g = 16 */
  memset(w13 + sizeof w13 / 2, 0x41, sizeof w13 / 2); /* up: .5 and 2, so u = 8 */
  memset(s13, 127, sizeof s13);                       /* 2^0; silu(16) * 8 is 128 in bf16 */
  memset(w2, 0x55, sizeof w2);                        /* 3 */
  memset(s2, 126, sizeof s2);                         /* 2^-1, so each row sums to 32 * 1.5 * 128 = 6144 */
  const int32_t ids[1] = {7};
  const float weights[1] = {0.25f};
  const float expected = 1536;
  float y[K];

  const mxk_shape shape = {1, 1, 1, K, I};
  mxk_engine* engine;
  if (mxk_engine_create("glm", &shape, "generic", 1, &engine) != MXK_OK) {
    fprintf(stderr, "create: %s\n", mxk_last_error());
    return 1;
  }
  mxk_call call = {0};
  call.shape = shape;
  call.w13 = w13;
  call.s13 = s13;
  call.w2 = w2;
  call.s2 = s2;
  call.x = x;
  call.topk_ids = ids;
  call.topk_weights = weights;
  call.weights_dtype = MXK_F32;
  call.first_expert = 7;
  call.y = y;
  call.out_dtype = MXK_F32;
  if (mxk_engine_run(engine, &call) != MXK_OK) {
    fprintf(stderr, "run: %s\n", mxk_last_error());
    return 1;
  }
  int wrong = 0;
  for (int i = 0; i < K; ++i)
    if (y[i] != expected) {
      fprintf(stderr, "y[%d] is %g, expected %g\n", i, y[i], expected);
      wrong = 1;
    }
  printf("mxk %s, backend %s: y[0] = %g\n", mxk_version(), mxk_engine_backend(engine), y[0]);
  mxk_engine_destroy(engine);

  if (mxk_engine_create("nothing", &shape, NULL, 1, &engine) != MXK_UNSUPPORTED_VARIANT || !*mxk_last_error()) {
    fprintf(stderr, "an unknown variant was taken\n");
    wrong = 1;
  }
  return wrong;
}
