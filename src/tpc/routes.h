/* SPDX-License-Identifier: Apache-2.0
 *
 * Which routes run here, sorted by expert, and how many of an expert's are taken together. Scalar code: every TPC does
 * the same, at the start of the kernel.
 *
 * Scalar local memory: words 0..127 routes in the order of work, expert << 16 | token << 8 | route; words 128..159 a
 * counter of one byte for each expert, while sorting.
 */
#define COUNTER(e) (128 + ((e) >> 2))
#define COUNTER_SHIFT(e) (((e)&3) << 3)
#define ROUTE_WORD(i) GET_SCALAR(i)
#define ROUTE_EXPERT(word) ((word) >> 16)
#define ROUTE_TOKEN(word) (((word) >> 8) & 0xFF)
#define ROUTE_NUMBER(word) ((word)&0xFF)

/* Of slot i of token t; not below the number of experts where the route is of another rank. */
#define LOCAL_EXPERT(t, i) ((unsigned)s_i32_ld_g(gen_addr(at2(i, t), ids)) - (unsigned)first_expert)

/* A stable counting sort by local expert; ids outside of [first_expert, first_expert + experts) are not in it.
 * Declares tokens, top_k, local. */
#define SORT_ROUTES                                                                                                  \
  const int tokens = get_dim_size(ids, 1), top_k = get_dim_size(ids, 0);                                             \
  int local = 0;                                                                                                     \
  {                                                                                                                  \
    const int experts = get_dim_size(w, 2);                                                                          \
    const int zero = tokens >> 16; /* not a constant: compilers make a loop of those a memset */                     \
    for (int e_ = 0; e_ < experts; e_ += 4) PUT_SCALAR(COUNTER(e_), zero);                                           \
    for (int t_ = 0; t_ < tokens; t_++)                                                                              \
      for (int i_ = 0; i_ < top_k; i_++) {                                                                           \
        const unsigned e_ = LOCAL_EXPERT(t_, i_);                                                                    \
        if (e_ < (unsigned)experts)                                                                                  \
          PUT_SCALAR(COUNTER(e_), (int)((unsigned)GET_SCALAR(COUNTER(e_)) + (1u << COUNTER_SHIFT(e_))));             \
      }                                                                                                              \
    for (int e_ = 0; e_ < experts; e_ += 4) { /* counts become places */                                             \
      const unsigned counts_ = (unsigned)GET_SCALAR(COUNTER(e_));                                                    \
      unsigned places_ = 0;                                                                                          \
      for (int i_ = 0; i_ < 32; i_ += 8) {                                                                           \
        places_ |= (unsigned)local << i_;                                                                            \
        local += (counts_ >> i_) & 0xFF;                                                                             \
      }                                                                                                              \
      PUT_SCALAR(COUNTER(e_), (int)places_);                                                                         \
    }                                                                                                                \
    int route_ = 0;                                                                                                  \
    for (int t_ = 0; t_ < tokens; t_++)                                                                              \
      for (int i_ = 0; i_ < top_k; i_++) {                                                                           \
        const unsigned e_ = LOCAL_EXPERT(t_, i_);                                                                    \
        if (e_ < (unsigned)experts) {                                                                                \
          const int places_ = GET_SCALAR(COUNTER(e_));                                                               \
          PUT_SCALAR(COUNTER(e_), (int)((unsigned)places_ + (1u << COUNTER_SHIFT(e_))));                             \
          PUT_SCALAR((places_ >> COUNTER_SHIFT(e_)) & 0xFF,                                                          \
                     (int)(e_ << 16) | (t_ << 8) | route_);                                                          \
        }                                                                                                            \
        route_++;                                                                                                    \
      }                                                                                                              \
  }

/* How a row of `chunks` chunks is cut into blocks where `sums` vectors of local memory are taken. For R > 1 only the
 * first block is in local memory: four loads for each chunk-row and route of the second come from the tensor, which is
 * as much as the load port bears when that is no more than half of the row.
 * Declares, for R in 1, 2, 4: nb_<R> chunks in a block, or 0 where R routes at once are not taken; first_sum, the first
 * of the vectors taken; second_in_tensor, for R = 1. */
#define PLAN_BLOCKS(sums)                                                                                            \
  const int slots_ = (sums) <= 20 ? SLOTS_R4 : (sums) <= 31 ? SLOTS_R2 : SLOTS_R1;                                   \
  const int first_sum = LOCAL_VECTORS - slots_ - (sums);                                                             \
  const int half_ = (chunks + 1) >> 1;                                                                               \
  const int most_2 = slots_ >= SLOTS_R2 ? min_int(first_sum >> 3, 6) : 0;                                            \
  const int most_4 = slots_ >= SLOTS_R4 ? min_int(first_sum >> 4, 3) : 0;                                            \
  const int nb_1 = chunks <= 8 ? chunks : half_;                                                                     \
  const int nb_2 = chunks <= most_2 ? chunks : half_ <= most_2 ? half_ : 0;                                          \
  const int nb_4 = chunks < 2 ? 0 : chunks <= most_4 ? chunks : 2 * half_ == chunks && half_ <= most_4 ? half_ : 0;  \
  const int second_in_tensor = MXK_X_TAIL && 8 * half_ > LOCAL_VECTORS - SLOTS_R1;

/* The visit that starts at route i of the order. Declares word and same_, and sets expert, routes, nb, blocks, next_expert. */
#define BEGIN_VISIT(i)                                                                                               \
  const int word = ROUTE_WORD(i);                                                                                    \
  int same_ = 1;                                                                                                     \
  expert = ROUTE_EXPERT(word);                                                                                       \
  while (same_ < 4 && (i) + same_ < local && ROUTE_EXPERT(ROUTE_WORD((i) + same_)) == expert) same_++;               \
  routes = 1;                                                                                                        \
  nb = nb_1;                                                                                                         \
  if (same_ >= 2 && nb_2 > 0) {                                                                                      \
    routes = 2;                                                                                                      \
    nb = nb_2;                                                                                                       \
  }                                                                                                                  \
  if (same_ == 4 && nb_4 > 0) {                                                                                      \
    routes = 4;                                                                                                      \
    nb = nb_4;                                                                                                       \
  }                                                                                                                  \
  blocks = chunks > nb ? 2 : 1;                                                                                      \
  next_expert = expert;                                                                                              \
  if ((i) + routes < local) next_expert = ROUTE_EXPERT(ROUTE_WORD((i) + routes));

/* Activations of the visit into local memory, as row.h wants them. ROW_OF(word): the row of x that a route reads. */
#define LOAD_ACTIVATIONS(i, ROW_OF)                                                                                  \
  {                                                                                                                  \
    int kept_ = nb;                                                                                                  \
    if (routes == 1 && !second_in_tensor) kept_ = nb * blocks;                                                       \
    int to_ = 0;                                                                                                     \
    for (int q_ = 0; q_ < routes; q_++) {                                                                            \
      int5 from_ = at2(0, ROW_OF(ROUTE_WORD((i) + q_)));                                                             \
      for (int n_ = 0; n_ < 4 * kept_; n_++) {                                                                       \
        PUT_VECTOR(to_, (float64)v_bf16_ld_tnsr_b(from_, x));                                                        \
        from_[0] += 128;                                                                                             \
        to_++;                                                                                                       \
      }                                                                                                              \
    }                                                                                                                \
    row0 = ROW_OF(word);                                                                                             \
    row1 = row0;                                                                                                     \
    row2 = row0;                                                                                                     \
    row3 = row0;                                                                                                     \
    if (routes >= 2) row1 = ROW_OF(ROUTE_WORD((i) + 1));                                                             \
    if (routes == 4) {                                                                                               \
      row2 = ROW_OF(ROUTE_WORD((i) + 2));                                                                            \
      row3 = ROW_OF(ROUTE_WORD((i) + 3));                                                                            \
    }                                                                                                                \
  }
