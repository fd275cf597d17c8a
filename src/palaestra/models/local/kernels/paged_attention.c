/* Attention over keys and values in blocks.

   Compiled for one shape: HEAD_DIM (a multiple of 16), SHARE (query heads per key head),
   BLOCK (tokens per block), and BF16 for 16-bit numbers, else fp32. Sums are fp32; scores,
   probabilities and results are rounded to the network's number format where the learner's plain
   products round them. If the CPU multiplies pairs of 16-bit numbers, sums are taken in the order
   of oneDNN's products, which gives the learner's results to the bit. */

#include "softmax.h"

#include <stdlib.h>

#define VECTORS (HEAD_DIM / LANES)

typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

#ifdef BF16
typedef uint16_t element;

static inline floats load(const element *from) {
    halves narrow;
    memcpy(&narrow, from, sizeof narrow);
    return (floats)(__builtin_convertvector(narrow, words) << 16);
}

/* to the nearest, ties to even */
static inline words upper(floats wide) {
    words bits = (words)wide;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

static inline floats rounded(floats wide) { return (floats)(upper(wide) << 16); }

static inline void store(element *to, floats wide) {
    halves narrow = __builtin_convertvector(upper(wide), halves);
    memcpy(to, &narrow, sizeof narrow);
}
#else
typedef float element;

static inline floats load(const element *from) {
    floats wide;
    memcpy(&wide, from, sizeof wide);
    return wide;
}

static inline floats rounded(floats wide) { return wide; }

static inline void store(element *to, floats wide) { memcpy(to, &wide, sizeof wide); }
#endif

/* Prefetch one token of the next block: blocks are scattered, so the hardware cannot predict them.
   Into the L2 cache (hint 2): a whole block ahead is too much for L1. */
static inline void fetch(const element *row) {
    for (int i = 0; i < HEAD_DIM; i += 64 / (int)sizeof(element)) __builtin_prefetch(row + i, 0, 2);
}

/* score: of the first n tokens of a block with each query, products only; `scores` has `room`
   entries per query. mix: adds the tokens' weighted values. Both may access the whole block. */

#if defined(BF16) && defined(__AVX512BF16__) && HEAD_DIM % 32 == 0 && BLOCK % LANES == 0
#include <immintrin.h>

#define PAIRS (HEAD_DIM / 2)

typedef __m512 mixture[SHARE][VECTORS];

static inline __m512 dot(__m512 sum, const element *pair, __m512i others) {
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(both), (__m512bh)others);
}

/* 16 x 16 words: rows become columns */
static inline void transpose(__m512i *m) {
    __m512i t[LANES];
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        m[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        m[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        m[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        m[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(m[i], m[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(m[i], m[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(m[i + 8], m[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(m[i + 8], m[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        m[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        m[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

static inline void score(const element *q, const element *k, const element *next, long n,
                         float *scores, long room) {
    for (long j = 0; j < n; j += LANES, k += LANES * HEAD_DIM, next += LANES * HEAD_DIM) {
        __m512 sums[SHARE];
        for (int h = 0; h < SHARE; h++) sums[h] = _mm512_setzero_ps();
        for (int p = 0; p < PAIRS; p += LANES) {
            __m512i keys[LANES];
            for (int t = 0; t < LANES; t++) {
                if (p == 0) fetch(next + t * HEAD_DIM);
                keys[t] = _mm512_loadu_si512(k + t * HEAD_DIM + 2 * p);
            }
            transpose(keys);
            for (int i = 0; i < LANES; i++)
                for (int h = 0; h < SHARE; h++)
                    sums[h] = dot(sums[h], q + h * HEAD_DIM + 2 * (p + i), keys[i]);
        }
        for (int h = 0; h < SHARE; h++) _mm512_storeu_ps(scores + h * room + j, sums[h]);
    }
}

static inline void mix(const element *v, const element *next, long n, const element *weights,
                       long room, mixture mixed) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0),
                  high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (long j = 0; j < n; j += 2, v += 2 * HEAD_DIM, next += 2 * HEAD_DIM) {
        fetch(next);
        fetch(next + HEAD_DIM);
        for (int i = 0; i < VECTORS; i += 2) {
            __m512i one = _mm512_loadu_si512(v + i * LANES);
            __m512i other = _mm512_loadu_si512(v + HEAD_DIM + i * LANES);
            __m512i left = _mm512_permutex2var_epi16(one, low, other);
            __m512i right = _mm512_permutex2var_epi16(one, high, other);
            for (int h = 0; h < SHARE; h++) {
                mixed[h][i] = dot(mixed[h][i], weights + h * room + j, left);
                mixed[h][i + 1] = dot(mixed[h][i + 1], weights + h * room + j, right);
            }
        }
    }
}
#else
typedef floats mixture[SHARE][VECTORS];

static inline float sum(floats v) {
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return v[0] + v[1];
}

static inline void score(const element *q, const element *k, const element *next, long n,
                         float *scores, long room) {
    for (long j = 0; j < n; j++, k += HEAD_DIM, next += HEAD_DIM) {
        fetch(next);
        floats key[VECTORS];
        for (int i = 0; i < VECTORS; i++) key[i] = load(k + i * LANES);
        for (int h = 0; h < SHARE; h++) {
            floats products = load(q + h * HEAD_DIM) * key[0];
            for (int i = 1; i < VECTORS; i++)
                products += load(q + h * HEAD_DIM + i * LANES) * key[i];
            scores[h * room + j] = sum(products);
        }
    }
}

static inline void mix(const element *v, const element *next, long n, const element *weights,
                       long room, mixture mixed) {
    for (long j = 0; j < n; j++, v += HEAD_DIM, next += HEAD_DIM) {
        fetch(next);
        floats value[VECTORS];
        for (int i = 0; i < VECTORS; i++) value[i] = load(v + i * LANES);
        for (int h = 0; h < SHARE; h++) {
#ifdef BF16
            uint32_t bits = (uint32_t)weights[h * room + j] << 16;
            float weight;
            memcpy(&weight, &bits, sizeof weight);
#else
            float weight = weights[h * room + j];
#endif
            for (int i = 0; i < VECTORS; i++) mixed[h][i] += value[i] * weight;
        }
    }
}
#endif

/* One token and `heads` key heads, which are adjacent in a block, so that it is read sequentially.
   `table` has the blocks of its sequence; `following` is the start of the next token's keys. */
static void some(const element *q, const element *keys, const element *values, element *out,
                 const int32_t *table, long stride, long heads, long length, float scale,
                 float *scores, element *weights, const element *following) {
    const long room = (length + LANES - 1) / LANES * LANES, last = (length - 1) / BLOCK;
    const long own = BLOCK * HEAD_DIM, wide = SHARE * HEAD_DIM, rows = SHARE * room;
    for (long b = 0; b <= last; b++) {
        const element *block = keys + table[b] * stride;
        const element *next = b < last ? keys + table[b + 1] * stride : values + table[0] * stride;
        long n = b < last ? BLOCK : length - last * BLOCK;
        for (long g = 0; g < heads; g++)
            score(q + g * wide, block + g * own, next + g * own, n, scores + g * rows + b * BLOCK,
                  room);
    }
    for (long h = 0; h < heads * SHARE; h++) {
        float *row = scores + h * room;
        floats x;
        for (long j = 0; j < room; j += LANES) {
            memcpy(&x, row + j, sizeof x);
            x = rounded(x * scale);
            memcpy(row + j, &x, sizeof x);
        }
        softmax(row, room, length);
        for (long j = length; j < room; j++) row[j] = 0;
        for (long j = 0; j < room; j += LANES) {
            memcpy(&x, row + j, sizeof x);
            store(weights + h * room + j, x);
        }
    }
    mixture mixed[heads];
    memset(mixed, 0, sizeof mixed);
    for (long b = 0; b <= last; b++) {
        const element *block = values + table[b] * stride;
        const element *next = b < last ? values + table[b + 1] * stride : following;
        long n = b < last ? BLOCK : length - last * BLOCK;
        for (long g = 0; g < heads; g++)
            mix(block + g * own, next + g * own, n, weights + g * rows + b * BLOCK, room, mixed[g]);
    }
    for (long g = 0; g < heads; g++)
        for (int h = 0; h < SHARE; h++)
            for (int i = 0; i < VECTORS; i++)
                store(out + g * wide + h * HEAD_DIM + i * LANES, (floats)mixed[g][h][i]);
}

#define MANY 8  /* with at least this many tokens, one thread handles all heads of a token */
#define TURN 2  /* tokens that a thread takes at a time, so that it can prefetch the next one */

/* q: [tokens][.. query_stride ..], its heads side by side; keys, values: [blocks][kv_heads]
   [BLOCK][HEAD_DIM]; out: [tokens][kv_heads * SHARE][HEAD_DIM]; token t attends to the first
   lengths[t] tokens (at least 1) of the blocks in tables[rows[t] * width ..]. */
void attend(const element *q, long query_stride, const element *keys, const element *values,
            element *out, const int32_t *tables, long width, const int32_t *rows,
            const int32_t *lengths, long tokens, long kv_heads, float scale) {
    const long wide = SHARE * HEAD_DIM, stride = kv_heads * BLOCK * HEAD_DIM;
    const long heads = tokens < MANY ? 1 : kv_heads, parts = kv_heads / heads;
    const long turn = tokens < MANY ? 1 : TURN;
    long longest = 0;
    for (long t = 0; t < tokens; t++) longest = lengths[t] > longest ? lengths[t] : longest;
#pragma omp parallel
    {
        const long room = heads * SHARE * (longest + LANES);
        float *scores = malloc(sizeof(float) * room);
        element *weights = malloc(sizeof(element) * room);
#pragma omp for schedule(dynamic, turn)
        for (long i = 0; i < tokens * parts; i++) {
            const long t = i / parts, g = i % parts * heads, offset = g * BLOCK * HEAD_DIM;
            const long then = t + 1 < tokens ? t + 1 : t;
            some(q + t * query_stride + g * wide, keys + offset, values + offset,
                 out + (t * kv_heads + g) * wide, tables + rows[t] * width, stride, heads,
                 lengths[t], scale, scores, weights,
                 keys + tables[rows[then] * width] * stride + offset);
        }
        free(scores);
        free(weights);
    }
}

/* scores: [sequences][heads][new][reach]; of sequence i, new token t sees the first
   starts[i] + t + 1 entries. They become probabilities, the others zero. */
void softmax_seen(element *scores, const int32_t *starts, long sequences, long heads, long new,
                  long reach) {
    const long rows = sequences * heads * new, room = (reach + LANES - 1) / LANES * LANES;
#pragma omp parallel
    {
        float *row = malloc(sizeof(float) * room);
#pragma omp for schedule(static)
        for (long i = 0; i < rows; i++) {
            element *at = scores + i * reach, part[LANES];
            long seen = starts[i / (heads * new)] + i % new + 1;
            seen = seen < reach ? seen : reach;
            for (long j = 0; j < seen; j += LANES) {
                long n = seen - j < LANES ? seen - j : LANES;
                memcpy(part, at + j, n * sizeof *part);
                floats x = load(part);
                memcpy(row + j, &x, sizeof x);
            }
            softmax(row, (seen + LANES - 1) / LANES * LANES, seen);
            for (long j = 0; j < seen; j += LANES) {
                long n = seen - j < LANES ? seen - j : LANES;
                floats x;
                memcpy(&x, row + j, sizeof x);
                store(part, x);
                memcpy(at + j, part, n * sizeof *part);
            }
            memset(at + seen, 0, (reach - seen) * sizeof *at);
        }
        free(row);
    }
}
