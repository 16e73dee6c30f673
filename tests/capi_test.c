/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface from C: a layer whose result is known by hand, every error code it can give, and that no thread sees
 * the error of another.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mxk/mxk.h"

static int failures;

#define CHECK(condition)                                                                                  \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      ++failures;                                                                                         \
      printf("%s:%d: failed: %s (last error: '%s')\n", __FILE__, __LINE__, #condition, mxk_last_error()); \
    }                                                                                                     \
  } while (0)

/* The call gives this code, and a message with this part in it. */
#define CHECK_ERROR(call, want, part)                \
  do {                                               \
    CHECK((call) == (want));                         \
    CHECK(strstr(mxk_last_error(), (part)) != NULL); \
  } while (0)

enum { T = 2, TOP_K = 2, E = 2, K = 32, I = 32 };

typedef struct {
  uint8_t w13[E * 2 * I * K / 2], s13[E * 2 * I * K / 32], w2[E * K * I / 2], s2[E * K * I / 32];
  float b13[E * 2 * I], b2[E * K];
  uint16_t x[T * K];
  int32_t ids[T * TOP_K];
  float weights[T * TOP_K];
  uint16_t weights_bf16[T * TOP_K];
  float y[T * K];
  uint16_t y_bf16[T * K];
} layer;

/* Every code is 0.5 and every scale 1; x is 1 for token 0 and 2 for token 1. */
static mxk_call make_call(layer* l) {
  memset(l, 0, sizeof *l);
  memset(l->w13, 0x11, sizeof l->w13);
  memset(l->w2, 0x11, sizeof l->w2);
  memset(l->s13, 127, sizeof l->s13);
  memset(l->s2, 127 - 4, sizeof l->s2);
  for (int i = 0; i < K; ++i) {
    l->x[i] = 0x3F80;
    l->x[K + i] = 0x4000;
  }
  const int32_t ids[T * TOP_K] = {10, 9, 11, 10}; /* 9 is not here */
  const float weights[T * TOP_K] = {0.5f, 100.0f, 0.25f, 0.75f};
  const uint16_t weights_bf16[T * TOP_K] = {0x3F00, 0x42C8, 0x3E80, 0x3F40};
  memcpy(l->ids, ids, sizeof ids);
  memcpy(l->weights, weights, sizeof weights);
  memcpy(l->weights_bf16, weights_bf16, sizeof weights_bf16);
  mxk_call c;
  memset(&c, 0, sizeof c);
  const mxk_shape shape = {T, TOP_K, E, K, I};
  c.shape = shape;
  c.w13 = l->w13;
  c.s13 = l->s13;
  c.w2 = l->w2;
  c.s2 = l->s2;
  c.x = l->x;
  c.topk_ids = l->ids;
  c.topk_weights = l->weights;
  c.weights_dtype = MXK_F32;
  c.first_expert = 10;
  c.y = l->y;
  c.out_dtype = MXK_F32;
  return c;
}

/* g = u = 16 x, a = g * sigmoid(g) * u = 256 or 1024, y = w * 32 * 0.5 * 2^-4 * a: weights 0.5 and 0.25 + 0.75. */
static void test_result(mxk_engine* engine, layer* l) {
  mxk_call c = make_call(l);
  CHECK(mxk_engine_run(engine, &c) == MXK_OK);
  CHECK(strcmp(mxk_last_error(), "") == 0);
  for (int j = 0; j < K; ++j) {
    CHECK(fabsf(l->y[j] - 128.0f) < 1e-2f);
    CHECK(fabsf(l->y[K + j] - 1024.0f) < 1e-2f);
  }
  c.weights_dtype = MXK_BF16;
  c.topk_weights = l->weights_bf16;
  c.y = l->y_bf16;
  c.out_dtype = MXK_BF16;
  CHECK(mxk_engine_run(engine, &c) == MXK_OK);
  for (int j = 0; j < K; ++j) {
    CHECK(l->y_bf16[j] == 0x4300);     /* 128 */
    CHECK(l->y_bf16[K + j] == 0x4480); /* 1024 */
  }
}

static void test_run_errors(mxk_engine* engine, layer* l) {
  mxk_call c = make_call(l);
  memset(l->y, 0x55, sizeof l->y);
  float before[T * K];
  memcpy(before, l->y, sizeof before);

  CHECK_ERROR(mxk_engine_run(NULL, &c), MXK_BAD_ARGUMENT, "null");
  CHECK_ERROR(mxk_engine_run(engine, NULL), MXK_BAD_ARGUMENT, "null");
  c.x = NULL;
  CHECK_ERROR(mxk_engine_run(engine, &c), MXK_BAD_ARGUMENT, "null");
  c.x = l->x;
  c.b2 = l->b2;
  CHECK_ERROR(mxk_engine_run(engine, &c), MXK_BAD_ARGUMENT, "bias");
  c.b2 = NULL;
  const int32_t bad_dtypes[] = {-1, 2, 12345};
  for (int i = 0; i < 3; ++i) {
    char text[32];
    snprintf(text, sizeof text, "=%d", (int)bad_dtypes[i]);
    c.out_dtype = bad_dtypes[i];
    CHECK_ERROR(mxk_engine_run(engine, &c), MXK_BAD_DTYPE, text);
    c.out_dtype = MXK_F32;
    c.weights_dtype = bad_dtypes[i];
    CHECK_ERROR(mxk_engine_run(engine, &c), MXK_BAD_DTYPE, text);
    c.weights_dtype = MXK_F32;
  }
  c.shape.T = T + 1;
  CHECK_ERROR(mxk_engine_run(engine, &c), MXK_BAD_SHAPE, "T=3");
  c.shape.T = T;
  c.shape.K = 48;
  CHECK_ERROR(mxk_engine_run(engine, &c), MXK_BAD_SHAPE, "K=48");
  c.shape.K = K;
  CHECK(memcmp(before, l->y, sizeof before) == 0);
  CHECK(mxk_engine_run(engine, &c) == MXK_OK);
  CHECK(memcmp(before, l->y, sizeof before) != 0);
}

static void test_create_errors(void) {
  const mxk_shape max = {T, TOP_K, E, K, I}, bad = {T, TOP_K, E, 33, I};
  mxk_engine* engine = (mxk_engine*)&max; /* anything: a failure sets it to NULL */
  CHECK_ERROR(mxk_engine_create("nothing", &max, "ref", 1, &engine), MXK_UNSUPPORTED_VARIANT, "nothing");
  CHECK(engine == NULL);
  CHECK_ERROR(mxk_engine_create(NULL, &max, "ref", 1, &engine), MXK_UNSUPPORTED_VARIANT, "null");
  CHECK_ERROR(mxk_engine_create("glm", NULL, "ref", 1, &engine), MXK_BAD_ARGUMENT, "max");
  CHECK_ERROR(mxk_engine_create("glm", &max, "ref", 1, NULL), MXK_BAD_ARGUMENT, "out");
  CHECK_ERROR(mxk_engine_create("glm", &bad, "ref", 1, &engine), MXK_BAD_SHAPE, "K=33");
  CHECK_ERROR(mxk_engine_create("glm", &max, "ref", -1, &engine), MXK_BAD_ARGUMENT, "threads=-1");
  CHECK_ERROR(mxk_engine_create("glm", &max, "no-such", 1, &engine), MXK_BACKEND_UNKNOWN, "no-such");
  CHECK(engine == NULL);
  mxk_engine_destroy(NULL);
  CHECK(strcmp(mxk_engine_backend(NULL), "") == 0);

  setenv("MXK_BACKEND", "from-the-environment", 1);
  CHECK_ERROR(mxk_engine_create("glm", &max, NULL, 1, &engine), MXK_BACKEND_UNKNOWN, "from-the-environment");
  CHECK_ERROR(mxk_engine_create("glm", &max, "", 1, &engine), MXK_BACKEND_UNKNOWN, "from-the-environment");
  setenv("MXK_BACKEND", "generic", 1);
  CHECK(mxk_engine_create("glm", &max, NULL, 1, &engine) == MXK_OK);
  CHECK(strcmp(mxk_engine_backend(engine), "generic") == 0);
  mxk_engine_destroy(engine);
  unsetenv("MXK_BACKEND");
  CHECK(mxk_engine_create("glm", &max, NULL, 0, &engine) == MXK_OK); /* the best there is, on all cores */
  CHECK(strcmp(mxk_engine_backend(engine), "") != 0);
  mxk_engine_destroy(engine);
}

static void test_check(void) {
  const mxk_shape good = {32, 4, 128, 2880, 2880}, bad = {33, 1, 1, 2880, 2880};
  CHECK(mxk_check("gptoss", &good) == MXK_OK);
  CHECK(strcmp(mxk_last_error(), "") == 0);
  CHECK_ERROR(mxk_check("gptoss", &bad), MXK_BAD_SHAPE, "T=33");
  CHECK(strstr(mxk_last_error(), "gptoss") != NULL && strstr(mxk_last_error(), "32") != NULL);
  CHECK_ERROR(mxk_check("gptoss", NULL), MXK_BAD_ARGUMENT, "shape");
  CHECK_ERROR(mxk_check(NULL, &good), MXK_UNSUPPORTED_VARIANT, "null");
  CHECK_ERROR(mxk_check("", &good), MXK_UNSUPPORTED_VARIANT, "''");
}

static void* other_thread(void* arg) {
  int* wrong = arg;
  *wrong = strcmp(mxk_last_error(), "") != 0; /* nothing has failed here */
  const mxk_shape shape = {1, 1, 1, 32, 32};
  if (mxk_check("other", &shape) != MXK_UNSUPPORTED_VARIANT || !strstr(mxk_last_error(), "other")) *wrong = 1;
  return NULL;
}

static void test_error_is_of_this_thread(void) {
  const mxk_shape shape = {1, 1, 1, 32, 32};
  CHECK_ERROR(mxk_check("mine", &shape), MXK_UNSUPPORTED_VARIANT, "mine");
  pthread_t thread;
  int wrong = 1;
  CHECK(pthread_create(&thread, NULL, other_thread, &wrong) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(!wrong);
  CHECK(strstr(mxk_last_error(), "mine") != NULL);
}

int main(void) {
  unsetenv("MXK_BACKEND");
  CHECK(strlen(mxk_version()) >= strlen("0.0.0"));
  static layer l;
  const mxk_shape max = {T, TOP_K, E, K, I};
  const char* backends[] = {"ref", "generic", "stock", NULL};
  for (size_t i = 0; i < sizeof backends / sizeof *backends; ++i) {
    mxk_engine* engine = NULL;
    CHECK(mxk_engine_create("glm", &max, backends[i], 2, &engine) == MXK_OK);
    if (!engine) continue;
    if (backends[i]) CHECK(strcmp(mxk_engine_backend(engine), backends[i]) == 0);
    test_result(engine, &l);
    test_run_errors(engine, &l);
    mxk_engine_destroy(engine);
  }
  test_create_errors();
  test_check();
  test_error_is_of_this_thread();
  printf("%s\n", failures ? "FAILED" : "ok");
  return failures ? 1 : 0;
}
