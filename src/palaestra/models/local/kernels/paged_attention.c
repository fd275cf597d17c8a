/* Attention over keys and values in blocks.

   Compiled for one shape: HEAD_DIM (a multiple of 16), SHARE (query heads per key head),
   BLOCK (tokens per block), and BF16 for 16-bit numbers, else fp32. Sums are fp32; scores,
   probabilities and results are rounded to the network's number format where the learner's plain
   products round them. If the CPU multiplies pairs of 16-bit numbers, sums are taken in the order
   of oneDNN's products, which gives the learner's results to the bit. Else, successive tokens of a
   sequence are computed together, so that its keys and values are read once for all of them; sums
   run feature by feature and key by key, so no result depends on the others. */

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

/* score: of the first n tokens of a block with each of some queries, products only; `scores` has
   `room` entries per query. mix: adds the tokens' weighted values. Both may access the whole block. */

#if defined(BF16) && defined(__AVX512BF16__) && HEAD_DIM % 32 == 0 && BLOCK % LANES == 0
#include <immintrin.h>

#define PAIRS (HEAD_DIM / 2)
#define TOGETHER 1 /* tokens of a sequence */

typedef element asking;
typedef __m512 mixture[SHARE][VECTORS];

static inline void ask(const element *q, asking *to) { memcpy(to, q, HEAD_DIM * sizeof *q); }

static inline floats mixed_part(const mixture mixed, int h, int i) { return (floats)mixed[h][i]; }

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

static inline void score(const asking *q, long rows, const element *k, const element *next, long n,
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
                       long rows, long room, mixture *all) {
    __m512 (*mixed)[VECTORS] = *all;
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
#ifdef __AVX__
#include <immintrin.h>
#endif

#define TOGETHER 8
#define ROWS 6 /* of a tile: with two vectors of numbers each, 12 of 16 registers */

typedef float asking;
typedef float mixture[SHARE][HEAD_DIM];
typedef part loose __attribute__((aligned(4)));

static inline void ask(const element *q, asking *to) {
    for (int i = 0; i < HEAD_DIM; i += LANES) {
        floats x = load(q + i);
        memcpy(to + i, &x, sizeof x);
    }
}

static inline floats mixed_part(const mixture mixed, int h, int i) {
    floats x;
    memcpy(&x, mixed[h] + i * LANES, sizeof x);
    return x;
}

/* out [rows, LANES] = a [rows, count] x b [count, LANES], added to what is there unless `fresh` */
static inline __attribute__((always_inline)) void tile(const float *a, long a_stride,
                                                       const float *b, long b_stride, long count,
                                                       float *out, long out_stride, int fresh,
                                                       const int rows) {
    part sums[ROWS][PARTS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++)
            sums[r][i] = fresh ? (part){0} : *(const loose *)(out + r * out_stride + i * WIDTH);
    for (long k = 0; k < count; k++, b += b_stride) {
        part given[PARTS];
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) given[i] = *(const loose *)(b + i * WIDTH);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < PARTS; i++) sums[r][i] += given[i] * a[r * a_stride + k];
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) *(loose *)(out + r * out_stride + i * WIDTH) = sums[r][i];
}

static inline void products(const float *a, long a_stride, const float *b, long b_stride,
                            long count, float *out, long out_stride, int fresh, long rows) {
    for (; rows > 0; rows -= ROWS, a += ROWS * a_stride, out += ROWS * out_stride)
        switch (rows < ROWS ? rows : ROWS) {
#define TILE(n) \
    case n: \
        tile(a, a_stride, b, b_stride, count, out, out_stride, fresh, n); \
        break;
            TILE(1)
            TILE(2)
            TILE(3)
            TILE(4)
            TILE(5)
            TILE(6)
#undef TILE
        }
}

/* `count` keys, at most LANES: columns [HEAD_DIM][LANES] */
static inline void transpose(const element *k, long count, float *columns) {
#if defined(__AVX__) && !defined(BF16) && BLOCK % 8 == 0
    for (long j = 0; j < count; j += 8, k += 8 * HEAD_DIM, columns += 8)
        for (int f = 0; f < HEAD_DIM; f += 8) {
            __m256 m[8], t[8];
            for (int i = 0; i < 8; i++) m[i] = _mm256_loadu_ps(k + i * HEAD_DIM + f);
            for (int i = 0; i < 8; i += 2) {
                t[i] = _mm256_unpacklo_ps(m[i], m[i + 1]);
                t[i + 1] = _mm256_unpackhi_ps(m[i], m[i + 1]);
            }
            for (int i = 0; i < 8; i += 4)
                for (int h = 0; h < 2; h++) {
                    m[i + 2 * h] = _mm256_shuffle_ps(t[i + h], t[i + 2 + h], 0x44);
                    m[i + 2 * h + 1] = _mm256_shuffle_ps(t[i + h], t[i + 2 + h], 0xee);
                }
            for (int i = 0; i < 4; i++) {
                float *to = columns + (f + i) * LANES;
                _mm256_storeu_ps(to, _mm256_permute2f128_ps(m[i], m[i + 4], 0x20));
                _mm256_storeu_ps(to + 4 * LANES, _mm256_permute2f128_ps(m[i], m[i + 4], 0x31));
            }
        }
#else
    for (long j = 0; j < count; j++)
        for (int f = 0; f < HEAD_DIM; f += LANES) {
            floats x = load(k + j * HEAD_DIM + f);
            for (int i = 0; i < LANES; i++) columns[(f + i) * LANES + j] = x[i];
        }
#endif
}

static inline void score(const asking *q, long rows, const element *k, const element *next, long n,
                         float *scores, long room) {
    float columns[HEAD_DIM * LANES] = {0};
    for (long j = 0; j < n; j += LANES) {
        long count = n - j < LANES ? n - j : LANES;
        for (long i = j; i < j + count; i++) fetch(next + i * HEAD_DIM);
        transpose(k + j * HEAD_DIM, count, columns);
#if BLOCK % LANES == 0
        products(q, HEAD_DIM, columns, LANES, HEAD_DIM, scores + j, room, 1, rows);
#else
        float found[TOGETHER * SHARE * LANES];
        products(q, HEAD_DIM, columns, LANES, HEAD_DIM, found, LANES, 1, rows);
        for (long r = 0; r < rows; r++)
            memcpy(scores + r * room + j, found + r * LANES, count * sizeof *found);
#endif
    }
}

static inline void mix(const element *v, const element *next, long n, const element *weights,
                       long rows, long room, mixture *all) {
    float *mixed = (float *)all;
    for (long j = 0; j < n; j++) fetch(next + j * HEAD_DIM);
#ifdef BF16
    float values[BLOCK * HEAD_DIM], shares[TOGETHER * SHARE * BLOCK];
    for (long i = 0; i < n * HEAD_DIM; i += LANES) {
        floats x = load(v + i);
        memcpy(values + i, &x, sizeof x);
    }
    for (long r = 0; r < rows; r++)
        for (long j = 0; j < n; j++) {
            uint32_t bits = (uint32_t)weights[r * room + j] << 16;
            memcpy(shares + r * BLOCK + j, &bits, sizeof bits);
        }
    const long apart = BLOCK;
#else
    const float *values = v, *shares = weights;
    const long apart = room;
#endif
    for (int i = 0; i < HEAD_DIM; i += LANES)
        products(shares, apart, values + i, HEAD_DIM, n, mixed + i, HEAD_DIM, 0, rows);
}
#endif

/* Whether many successive tokens of a sequence are computed faster together than by products of
   matrices: with vectors of at least 256 bits; narrower ones were not measured. */
long together(void) { return TOGETHER > 1 && WIDTH >= 8 && sizeof(element) == 4; }

/* `count` successive tokens of a sequence, `query_stride` apart, of which the first one sees `length`
   tokens, and `heads` key heads, which are adjacent in a block, so that it is read sequentially.
   `table` has the blocks of the sequence; `following` is the start of the next one's keys. Results
   lie `out_stride` apart. */
static void some(const element *q, long query_stride, long count, const element *keys,
                 const element *values, element *out, long out_stride, const int32_t *table,
                 long stride, long heads, long length, float scale, float *scores,
                 element *weights, const element *following) {
    const long longest = length + count - 1, last = (longest - 1) / BLOCK;
    const long room = (longest + LANES - 1) / LANES * LANES;
    const long own = BLOCK * HEAD_DIM, wide = SHARE * HEAD_DIM, rows = count * SHARE;
    asking asked[heads * rows * HEAD_DIM];
    for (long g = 0; g < heads; g++)
        for (long t = 0; t < count; t++)
            for (long h = 0; h < SHARE; h++)
                ask(q + t * query_stride + g * wide + h * HEAD_DIM,
                    asked + (g * rows + t * SHARE + h) * HEAD_DIM);
    for (long b = 0; b <= last; b++) {
        const element *block = keys + table[b] * stride;
        const element *next = b < last ? keys + table[b + 1] * stride : values + table[0] * stride;
        long n = b < last ? BLOCK : longest - last * BLOCK;
        for (long g = 0; g < heads; g++)
            score(asked + g * rows * HEAD_DIM, rows, block + g * own, next + g * own, n,
                  scores + g * rows * room + b * BLOCK, room);
    }
    for (long r = 0; r < heads * rows; r++) {
        const long seen = length + r % rows / SHARE;
        float *row = scores + r * room;
        floats x;
        for (long j = 0; j < room; j += LANES) {
            memcpy(&x, row + j, sizeof x);
            x = rounded(x * scale);
            memcpy(row + j, &x, sizeof x);
        }
        softmax(row, room, seen);
        for (long j = seen; j < room; j++) row[j] = 0;
        for (long j = 0; j < room; j += LANES) {
            memcpy(&x, row + j, sizeof x);
            store(weights + r * room + j, x);
        }
    }
    mixture mixed[heads * count];
    memset(mixed, 0, sizeof mixed);
    for (long b = 0; b <= last; b++) {
        const element *block = values + table[b] * stride;
        const element *next = b < last ? values + table[b + 1] * stride : following;
        long n = b < last ? BLOCK : longest - last * BLOCK;
        for (long g = 0; g < heads; g++)
            mix(block + g * own, next + g * own, n, weights + g * rows * room + b * BLOCK, rows,
                room, mixed + g * count);
    }
    for (long g = 0; g < heads; g++)
        for (long t = 0; t < count; t++)
            for (int h = 0; h < SHARE; h++)
                for (int i = 0; i < VECTORS; i++)
                    store(out + t * out_stride + g * wide + h * HEAD_DIM + i * LANES,
                          mixed_part(mixed[g * count + t], h, i));
}

#define MANY 8  /* with at least this many runs of one token, one thread handles all heads of each */
#define TURN 2  /* runs that a thread takes at a time, so that it can prefetch the next one */

/* q: [tokens][.. query_stride ..], its heads side by side; keys, values: [blocks][kv_heads]
   [BLOCK][HEAD_DIM]; out: [tokens][kv_heads * SHARE][HEAD_DIM]; token t attends to the first
   lengths[t] tokens (at least 1) of the blocks in tables[rows[t] * width ..]. */
void attend(const element *q, long query_stride, const element *keys, const element *values,
            element *out, const int32_t *tables, long width, const int32_t *rows,
            const int32_t *lengths, long tokens, long kv_heads, float scale) {
    const long wide = SHARE * HEAD_DIM, stride = kv_heads * BLOCK * HEAD_DIM;
    long longest = 0, runs = 0;
    long *first = malloc(sizeof(long) * (tokens + 1)); /* token of each run */
    for (long t = 0; t < tokens; t++) {
        longest = lengths[t] > longest ? lengths[t] : longest;
        if (t == 0 || rows[t] != rows[t - 1] || lengths[t] != lengths[t - 1] + 1 ||
            t - first[runs - 1] == TOGETHER)
            first[runs++] = t;
    }
    first[runs] = tokens;
    /* the scores of all heads of several tokens would not fit the core's cache */
    const long heads = runs < MANY || runs < tokens ? 1 : kv_heads, parts = kv_heads / heads;
    const long turn = runs < MANY ? 1 : TURN;
#pragma omp parallel
    {
        const long room = heads * TOGETHER * SHARE * (longest + LANES);
        float *scores = malloc(sizeof(float) * room);
        element *weights = malloc(sizeof(element) * room);
#pragma omp for schedule(dynamic, turn)
        for (long i = 0; i < runs * parts; i++) {
            const long run = i / parts, g = i % parts * heads, offset = g * BLOCK * HEAD_DIM;
            const long t = first[run], then = run + 1 < runs ? first[run + 1] : t;
            some(q + t * query_stride + g * wide, query_stride, first[run + 1] - t, keys + offset,
                 values + offset, out + (t * kv_heads + g) * wide, kv_heads * wide,
                 tables + rows[t] * width, stride, heads, lengths[t], scale, scores, weights,
                 keys + tables[rows[then] * width] * stride + offset);
        }
        free(scores);
        free(weights);
    }
    free(first);
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
