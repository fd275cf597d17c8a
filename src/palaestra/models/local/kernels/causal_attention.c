/* Products of causal attention in bf16, and its backward pass along rows with shared prefixes.

   Compiled for one HEAD_DIM (a multiple of 32), for CPUs that multiply pairs of 16-bit numbers.
   Sums are fp32; weights and their gradients are rounded to 16 bits before they are multiplied.
   Every number is computed by one thread, key by key, so results depend neither on the number of
   threads nor on the batch: a sampler that attends token by token (see paged_attention.c) and a
   learner that attends row by row get equal bits. */

#include "softmax.h"

#include <stdlib.h>

#if defined(__AVX512BF16__) && HEAD_DIM % 32 == 0
#include <immintrin.h>

#define ROWS 8                                /* queries of a tile, in pairs */
#define COLUMNS 48                            /* keys scored at once: three vectors */
#define FEW 4                                 /* rows of a product with all features at once */
#define PAIRS (HEAD_DIM / 2)
#define VECTORS (HEAD_DIM / LANES)
#define GROUP (VECTORS % 4 == 0 ? 4 : 2)      /* vectors of features at once */
#define ROUNDED(n, to) (((n) + (to) - 1) / (to) * (to))

typedef uint16_t element;
typedef uint32_t word; /* a pair of elements */

typedef struct {
    long own, count; /* first own token, and number of own tokens */
    long path, length; /* the path's start among the entries; it ends with the own tokens */
} branch;

/* Shared by all threads: buffers of one branch and all key heads. */
typedef struct {
    word *keys, *values; /* [kv_heads][blocks of COLUMNS][PAIRS][COLUMNS] */
    word *along;         /* keys, two of them side by side: [kv_heads][pairs][HEAD_DIM] */
    word *asks, *gives;  /* queries and gradients, likewise: [kv_heads][pairs][HEAD_DIM] */
    word *weights, *scores; /* gradients' factors: [kv_heads][blocks of LANES][pairs][LANES] */
} shared;

static inline word both(element low, element high) { return (word)high << 16 | low; }

/* rows of features, features in pairs, COLUMNS rows side by side; zeros at the end */
static void pack_columns(const element *x, long stride, const int32_t *path, long length, word *to) {
    for (long at = 0; at < length; at += COLUMNS, to += PAIRS * COLUMNS)
        for (long j = 0; j < COLUMNS; j++) {
            if (at + j >= length) {
                for (long p = 0; p < PAIRS; p++) to[p * COLUMNS + j] = 0;
                continue;
            }
            const element *from = x + path[at + j] * stride;
            for (long p = 0; p < PAIRS; p++) memcpy(to + p * COLUMNS + j, from + 2 * p, sizeof *to);
        }
}

/* two rows side by side, a row that is NULL as zeros */
static void pack_two(const element *a, const element *b, word *to) {
    static const element nothing[HEAD_DIM];
    a = a ? a : nothing;
    b = b ? b : nothing;
    for (long i = 0; i < HEAD_DIM; i++) to[i] = both(a[i], b[i]);
}

/* ROWS rows x COLUMNS of packed columns -> out [ROWS][room] */
static inline void score(const element *rows, const word *packed, float *out, long room) {
    __m512 sums[ROWS][3];
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; row++)
        sums[row][0] = sums[row][1] = sums[row][2] = _mm512_setzero_ps();
    for (long p = 0; p < PAIRS; p++, packed += COLUMNS) {
        __m512bh a = (__m512bh)_mm512_loadu_si512(packed);
        __m512bh b = (__m512bh)_mm512_loadu_si512(packed + 16);
        __m512bh c = (__m512bh)_mm512_loadu_si512(packed + 32);
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) {
            int32_t pair;
            memcpy(&pair, rows + row * HEAD_DIM + 2 * p, sizeof pair);
            __m512bh given = (__m512bh)_mm512_set1_epi32(pair);
            sums[row][0] = _mm512_dpbf16_ps(sums[row][0], a, given);
            sums[row][1] = _mm512_dpbf16_ps(sums[row][1], b, given);
            sums[row][2] = _mm512_dpbf16_ps(sums[row][2], c, given);
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; row++)
        for (int part = 0; part < 3; part++)
            _mm512_storeu_ps(out + row * room + 16 * part, sums[row][part]);
}

/* FEW rows of pairs x packed pairs, GROUP vectors of features: adds to sums. A row's pairs lie
   `step` words apart, rows `stride` words. */
typedef __m512 mixture[FEW][GROUP];

static inline __attribute__((always_inline)) void mix(mixture sums, const word *pairs, long stride,
                                                      long step, const word *packed, long count) {
    for (long p = 0; p < count; p++, pairs += step, packed += HEAD_DIM) {
        __m512bh x[GROUP];
#pragma GCC unroll 4
        for (int v = 0; v < GROUP; v++) x[v] = (__m512bh)_mm512_loadu_si512(packed + LANES * v);
#pragma GCC unroll 4
        for (int row = 0; row < FEW; row++) {
            __m512bh given = (__m512bh)_mm512_set1_epi32((int)pairs[row * stride]);
#pragma GCC unroll 4
            for (int v = 0; v < GROUP; v++) sums[row][v] = _mm512_dpbf16_ps(sums[row][v], x[v], given);
        }
    }
}

static inline void nothing(mixture sums) {
    for (int row = 0; row < FEW; row++)
        for (int v = 0; v < GROUP; v++) sums[row][v] = _mm512_setzero_ps();
}

/* in place, of one row's visible entries: scores -> weights, products -> gradients of the scores */
static inline void turn(float *weights, float *products, long seen, long room, float scale) {
    for (long j = 0; j < seen; j++) weights[j] *= scale;
    softmax(weights, ROUNDED(seen, LANES), seen);
    float mean = 0;
    for (long j = 0; j < ROUNDED(seen, LANES); j += LANES) {
        __m512 product = _mm512_mul_ps(_mm512_loadu_ps(weights + j), _mm512_loadu_ps(products + j));
        long left = seen - j;
        mean += _mm512_mask_reduce_add_ps(left < LANES ? (1u << left) - 1 : 0xffff, product);
    }
    for (long j = 0; j < seen; j++) products[j] = scale * weights[j] * (products[j] - mean);
    for (long j = seen; j < room; j++) weights[j] = products[j] = 0;
}

/* rows 2 i and 2 i + 1 of x [ROWS][room] as pairs, into blocks that lie `apart` words apart */
static inline void keep_pairs(const float *x, long room, long seen, word *to, long apart) {
    for (long j = 0; j < seen; j += LANES, to += apart)
        for (int i = 0; i < ROWS / 2; i++) {
            const float *low = x + 2 * i * room + j, *high = low + room;
            __m512i a = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(low)));
            __m512i b = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(high)));
            _mm512_storeu_si512(to + i * LANES, _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
        }
}

/* Weighted values: [matrices][rows][length] x [matrices][length][HEAD_DIM] -> out, rounded once.
   Rows come in runs of `count`. The first of a run sees length - count + 1 entries, each next row
   one more; unseen entries have no weight. Returns 1 without memory. */
int weigh(const element *weights, const element *values, element *out, long matrices, long rows,
          long length, long count) {
    const long pairs = (length + 1) / 2, tiles = (rows + FEW - 1) / FEW;
    word *packed = aligned_alloc(64, ROUNDED(matrices * pairs * HEAD_DIM * sizeof(word), 64));
    if (!packed) return 1;
    int failed = 0;
#pragma omp parallel reduction(| : failed)
    {
        word *own = aligned_alloc(64, ROUNDED(FEW * pairs * sizeof(word), 64));
        failed = !own;
#pragma omp for schedule(static)
        for (long job = 0; job < matrices * pairs; job++) {
            long matrix = job / pairs, j = job % pairs * 2;
            const element *from = values + (matrix * length + j) * HEAD_DIM;
            pack_two(from, j + 1 < length ? from + HEAD_DIM : NULL, packed + job * HEAD_DIM);
        }
#pragma omp for schedule(dynamic, 8)
        for (long job = 0; job < matrices * tiles; job++) {
            if (failed) continue;
            long matrix = job / tiles, first = job % tiles * FEW, most = 0;
            long given = rows - first < FEW ? rows - first : FEW;
            memset(own, 0, FEW * pairs * sizeof(word));
            for (long row = 0; row < given; row++) {
                long seen = length - count + (first + row) % count + 1;
                most = seen > most ? seen : most;
                memcpy(own + row * pairs, weights + (matrix * rows + first + row) * length,
                       seen * sizeof(element));
            }
            for (long i = 0; i < VECTORS; i += GROUP) {
                mixture sums;
                nothing(sums);
                mix(sums, own, pairs, 1, packed + matrix * pairs * HEAD_DIM + i * LANES,
                    (most + 1) / 2);
                element *to = out + (matrix * rows + first) * HEAD_DIM + i * LANES;
                for (long row = 0; row < given; row++, to += HEAD_DIM)
                    for (int n = 0; n < GROUP; n++)
                        _mm256_storeu_si256((__m256i *)(to + n * LANES),
                                            (__m256i)_mm512_cvtneps_pbh(sums[row][n]));
            }
        }
        free(own);
    }
    free(packed);
    return failed;
}

/* For each branch (see learning/compute/shared_prefix_attention.py): recompute the attention weights
   from queries and keys, a tile of ROWS queries at a time and only over visible entries; then each
   key sums the contributions of the queries that see it. q, grad, grad_q: [N, heads, HEAD_DIM];
   k, v: [N, kv_heads, HEAD_DIM]; grad_k, grad_v likewise, sums to add to. Returns 1 without memory. */
int attention_backward(const element *q, const element *k, const element *v, const element *grad,
                       element *grad_q, float *grad_k, float *grad_v, const branch *branches,
                       long number, const int32_t *entries, long heads, long kv_heads,
                       float scale) {
    long share = heads / kv_heads, length = 0, count = 0;
    for (long i = 0; i < number; i++) {
        length = branches[i].length > length ? branches[i].length : length;
        count = branches[i].count > count ? branches[i].count : count;
    }
    const long room = ROUNDED(length, COLUMNS), pairs = share * ROUNDED(count, ROWS) / 2;
    const long wide = room * PAIRS, high = ROUNDED(length, LANES) / 2 * HEAD_DIM;
    const long asked = pairs * HEAD_DIM, factors = ROUNDED(length, LANES) * pairs;
    const long sizes[] = {wide, wide, high, asked, asked, factors, factors};
    shared s;
    word **parts[] = {&s.keys, &s.values, &s.along, &s.asks, &s.gives, &s.weights, &s.scores};
    long total = 0;
    for (int i = 0; i < 7; i++) total += sizes[i] * kv_heads;
    word *memory = aligned_alloc(64, ROUNDED(total * sizeof(word), 64));
    if (!memory) return 1;
    word *next = memory;
    for (int i = 0; i < 7; i++) {
        *parts[i] = next;
        next += sizes[i] * kv_heads;
    }
    int failed = 0;
#pragma omp parallel reduction(| : failed)
    {
        float *weights = aligned_alloc(64, sizeof(float) * 2 * ROWS * room);
        element *scores = aligned_alloc(64, sizeof(element) * ROWS * room);
        float *products = weights + ROWS * room;
        failed = !weights || !scores;
        for (long at = 0; at < number; at++) {
            const branch b = branches[at];
            const int32_t *path = entries + b.path;
            const long tiles = (b.count + ROWS - 1) / ROWS, before = b.length - b.count;
            const long rows = tiles * ROWS / 2; /* pairs of a head */
#pragma omp for schedule(dynamic)
            for (long job = 0; job < kv_heads * (3 + share); job++) {
                long head = job % kv_heads, kind = job / kv_heads;
                long stride = kv_heads * HEAD_DIM, shift = head * HEAD_DIM;
                if (kind == 0) pack_columns(k + shift, stride, path, b.length, s.keys + head * wide);
                if (kind == 1) pack_columns(v + shift, stride, path, b.length, s.values + head * wide);
                if (kind == 2)
                    for (long j = 0; j < ROUNDED(b.length, LANES); j += 2)
                        pack_two(j < b.length ? k + shift + path[j] * stride : NULL,
                                 j + 1 < b.length ? k + shift + path[j + 1] * stride : NULL,
                                 s.along + head * high + j / 2 * HEAD_DIM);
                if (kind < 3) continue;
                long own = head * share + kind - 3, step = heads * HEAD_DIM;
                long to = head * asked + (kind - 3) * rows * HEAD_DIM;
                for (long t = 0; t < 2 * rows; t += 2) {
                    long from = (b.own + t) * step + own * HEAD_DIM;
                    int first = t < b.count, second = t + 1 < b.count;
                    pack_two(first ? q + from : NULL, second ? q + from + step : NULL,
                             s.asks + to + t / 2 * HEAD_DIM);
                    pack_two(first ? grad + from : NULL, second ? grad + from + step : NULL,
                             s.gives + to + t / 2 * HEAD_DIM);
                }
            }
            /* tile by tile of queries; the long ones first */
#pragma omp for schedule(dynamic)
            for (long job = 0; job < heads * tiles; job++) {
                if (failed) continue;
                long head = job % heads, tile = tiles - 1 - job / heads, group = head / share;
                long first = tile * ROWS, given = b.count - first < ROWS ? b.count - first : ROWS;
                long reach = before + first + given, seen = ROUNDED(reach, LANES);
                element asks[ROWS][HEAD_DIM] = {0}, gives[ROWS][HEAD_DIM] = {0};
                for (long row = 0; row < given; row++) {
                    long from = ((b.own + first + row) * heads + head) * HEAD_DIM;
                    memcpy(asks[row], q + from, sizeof asks[row]);
                    memcpy(gives[row], grad + from, sizeof gives[row]);
                }
                for (long j = 0; j < reach; j += COLUMNS) {
                    score(asks[0], s.keys + group * wide + j * PAIRS, weights + j, room);
                    score(gives[0], s.values + group * wide + j * PAIRS, products + j, room);
                }
                for (long row = 0; row < ROWS; row++) {
                    float *w = weights + row * room, *p = products + row * room;
                    if (row < given) turn(w, p, before + first + row + 1, seen, scale);
                    else for (long j = 0; j < seen; j++) w[j] = p[j] = 0;
                    for (long j = 0; j < seen; j += LANES)
                        _mm256_storeu_si256((__m256i *)(scores + row * room + j),
                                            (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(p + j)));
                }
                long where = group * factors + ((head % share) * rows + first / 2) * LANES;
                keep_pairs(weights, room, seen, s.weights + where, share * rows * LANES);
                keep_pairs(products, room, seen, s.scores + where, share * rows * LANES);
                for (long row = 0; row < given; row += FEW)
                    for (long i = 0; i < VECTORS; i += GROUP) {
                        mixture sums;
                        nothing(sums);
                        mix(sums, (const word *)(scores + row * room), room / 2, 1,
                            s.along + group * high + i * LANES, seen / 2);
                        for (long r = 0; r < FEW && row + r < given; r++)
                            for (int n = 0; n < GROUP; n++)
                                _mm256_storeu_si256(
                                    (__m256i *)(grad_q +
                                                ((b.own + first + row + r) * heads + head) * HEAD_DIM +
                                                (i + n) * LANES),
                                    (__m256i)_mm512_cvtneps_pbh(sums[r][n]));
                    }
            }
            /* key by key: all queries of the group that see it */
            long blocks = (b.length + LANES - 1) / LANES;
#pragma omp for schedule(dynamic)
            for (long job = 0; job < kv_heads * blocks; job++) {
                long group = job % kv_heads, block = job / kv_heads;
                long early = block * LANES - before; /* the first query that sees its first key */
                early = early > 0 ? early / ROWS * ROWS / 2 : 0;
                for (long key = 0; key < LANES; key += FEW)
                    for (long i = 0; i < VECTORS; i += GROUP)
                        for (int kind = 0; kind < 2; kind++) {
                            const word *factor = (kind ? s.scores : s.weights) + group * factors +
                                                 block * share * rows * LANES + key;
                            const word *packed = (kind ? s.asks : s.gives) + group * asked;
                            mixture sums;
                            nothing(sums);
                            for (long head = 0; head < share; head++) {
                                long from = head * rows + early;
                                mix(sums, factor + from * LANES, 1, LANES,
                                    packed + from * HEAD_DIM + i * LANES, rows - early);
                            }
                            for (long r = 0; r < FEW && block * LANES + key + r < b.length; r++) {
                                long entry = path[block * LANES + key + r];
                                float *to = (kind ? grad_k : grad_v) +
                                            (entry * kv_heads + group) * HEAD_DIM + i * LANES;
                                for (int n = 0; n < GROUP; n++, to += LANES)
                                    _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sums[r][n]));
                            }
                        }
            }
        }
        free(weights);
        free(scores);
    }
    free(memory);
    return failed;
}
#endif
