/* Products with packed weights that are widened as they are multiplied: quantised ones, in which each
   is a code times the scale of its group, and those of networks in fp32, stored in bf16 if that is
   exact.

   In a block of COLUMNS outputs, quantised weights lie like those of packed_layout.h: for all outputs
   side by side, the codes of one input (INT8), or those of two inputs in the halves of a byte (NF4,
   the first in the lower half); so do the scales of one group. A product widens a stretch of a block
   into a buffer that stays in the core's cache, and multiplies all tokens by it: with few tokens,
   the time is that of reading the weights as they are stored. Dequantised weights are code x scale,
   in fp32 or rounded to bf16, so that a product equals one with the dense matrix; bf16 products sum
   as matmul.c does. */

#include "element.h"
#include "packed_layout.h"

#include <stdint.h>
#include <string.h>

#define STEP 64   /* inputs widened at once, of one group */
#define PANEL 256 /* tokens for which a stretch is widened once */

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4)));

enum { INT8, NF4, NARROW, FP32 };

/* codes: [blocks, inputs, COLUMNS] of int8, [blocks, (inputs + 1) / 2, COLUMNS] of NF4, or weights as
   packed_layout.h has them, in bf16 (NARROW) or fp32.
   scales: bf16 [blocks, groups, COLUMNS]; a group is a multiple of STEP inputs, or all of them; none
   without quantisation. */
typedef struct {
    const uint8_t *codes;
    const uint16_t *scales;
    long inputs, outputs, group, format;
} matrix;

/* Dettmers et al. 2023: quantiles of a normal distribution, scaled to [-1, 1] */
static const float nf4[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
    0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};

static inline long smaller(long a, long b) { return a < b ? a : b; }

/* where the codes of a block begin at an input, which is even if two share a row */
static inline const uint8_t *codes_at(const matrix *m, long block, long input) {
    static const long bytes[] = {[INT8] = 1, [NF4] = 1, [NARROW] = 4, [FP32] = 4};
    long shared = m->format == NF4 || m->format == NARROW ? 2 : 1;
    long rows = (m->inputs + shared - 1) / shared;
    return m->codes + (block * rows + input / shared) * COLUMNS * bytes[m->format];
}

/* the scales of a block at an input */
static inline void scales_at(const matrix *m, long block, long input, float *scales) {
    long groups = (m->inputs + m->group - 1) / m->group;
    const uint16_t *from = m->scales + (block * groups + input / m->group) * COLUMNS;
    for (int c = 0; c < COLUMNS; c++) scales[c] = from_bf16(from[c]);
}

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/* the numbers of COLUMNS codes of NF4, one in the lower half of each byte if `shift` is 0, else in
   the upper half, times their scales */
static inline void nf4_row(const uint8_t *codes, int shift, const float *scales, float *out) {
#if defined(__AVX512F__)
    const __m512 table = _mm512_loadu_ps(nf4);
    for (int c = 0; c < COLUMNS; c += 16) {
        __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(codes + c)));
        __m512 value = _mm512_permutexvar_ps(_mm512_srli_epi32(code, shift), table);
        _mm512_storeu_ps(out + c, _mm512_mul_ps(value, _mm512_loadu_ps(scales + c)));
    }
#elif defined(__AVX2__)
    const __m256 low = _mm256_loadu_ps(nf4), high = _mm256_loadu_ps(nf4 + 8);
    for (int c = 0; c < COLUMNS; c += 8) {
        __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(codes + c)));
        code = _mm256_srli_epi32(code, shift);
        __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)); /* its sign chooses */
        __m256 value = _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code),
                                        _mm256_permutevar8x32_ps(high, code), upper);
        _mm256_storeu_ps(out + c, _mm256_mul_ps(value, _mm256_loadu_ps(scales + c)));
    }
#else
    for (int c = 0; c < COLUMNS; c++) out[c] = nf4[(codes[c] >> shift) & 15] * scales[c];
#endif
}

/* weights of a block from input `from` on: out [count, COLUMNS]; all of one group */
static inline void dequantise(const matrix *m, long block, long from, long count, float *out) {
    float scales[COLUMNS];
    scales_at(m, block, from, scales);
    const uint8_t *codes = codes_at(m, block, from);
    if (m->format == NF4) {
        for (long i = 0; i < count; i++, out += COLUMNS)
            nf4_row(codes + i / 2 * COLUMNS, i % 2 * 4, scales, out);
        return;
    }
    const int8_t *numbers = (const int8_t *)codes;
    for (long i = 0; i < count; i++, out += COLUMNS, numbers += COLUMNS)
        for (int c = 0; c < COLUMNS; c++) out[c] = (float)numbers[c] * scales[c];
}

/* the whole matrix: out [outputs, inputs], fp32 or else bf16 */
void dense(const matrix *m, void *out, long is_wide) {
    long blocks = (m->outputs + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for schedule(static)
    for (long block = 0; block < blocks; block++) {
        float stretch[STEP * COLUMNS];
        long first = block * COLUMNS, columns = smaller(COLUMNS, m->outputs - first);
        for (long from = 0; from < m->inputs; from += STEP) {
            long count = smaller(STEP, m->inputs - from);
            dequantise(m, block, from, count, stretch);
            for (long c = 0; c < columns; c++) {
                long to = (first + c) * m->inputs + from;
                if (is_wide)
                    for (long i = 0; i < count; i++)
                        ((float *)out)[to + i] = stretch[i * COLUMNS + c];
                else
                    for (long i = 0; i < count; i++)
                        ((uint16_t *)out)[to + i] = to_bf16(stretch[i * COLUMNS + c]);
            }
        }
    }
}

/* ── fp32 ─────────────────────────────────────────────────────────────────── */

/* Whether products with weights that are not quantised pay: with vectors of at least 256 bits they
   are faster than torch's; narrower ones were not measured. */
long pays(void) { return LANES >= 8; }

/* pairs of weights in fp32: out [2 pairs, COLUMNS] */
static inline void widen(const uint32_t *from, long pairs, float *out) {
    for (long pair = 0; pair < pairs; pair++, from += COLUMNS, out += 2 * COLUMNS)
        for (int c = 0; c < COLUMNS; c += LANES) {
            words both = *(const words *)(from + c);
            *(words *)(out + c) = both << 16;
            *(words *)(out + COLUMNS + c) = both & 0xffff0000u;
        }
}

/* weights of a block from input `from` on, [count, COLUMNS] in fp32, all of one group; in `buffer`
   unless they are stored so */
static inline const float *weights_at(const matrix *m, long block, long from, long count,
                                      float *buffer) {
    const void *stored = codes_at(m, block, from);
    if (m->format == FP32) return stored;
    if (m->format == NARROW)
        widen(stored, (count + 1) / 2, buffer);
    else
        dequantise(m, block, from, count, buffer);
    return buffer;
}

#if defined(__AVX512F__) || defined(__aarch64__)
#define ROWS 8 /* of 32 vector registers */
#else
#define ROWS 4 /* of 16 */
#endif
#define GROUP 3 /* vectors of outputs at once */

/* sums [rows, COLUMNS] += x [rows, count] x weights [count, COLUMNS] */
static inline __attribute__((always_inline)) void add_tile(const float *x, long stride,
                                                           const float *weights, long count,
                                                           float *sums, const int rows) {
    for (int c = 0; c < COLUMNS; c += GROUP * LANES) {
        vector own[ROWS][GROUP];
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 3
            for (int v = 0; v < GROUP; v++)
                own[row][v] = *(const vector *)(sums + row * COLUMNS + c + v * LANES);
        for (long i = 0; i < count; i++) {
            vector part[GROUP];
#pragma GCC unroll 3
            for (int v = 0; v < GROUP; v++)
                part[v] = *(const vector *)(weights + i * COLUMNS + c + v * LANES);
#pragma GCC unroll 8
            for (int row = 0; row < rows; row++)
#pragma GCC unroll 3
                for (int v = 0; v < GROUP; v++) own[row][v] += part[v] * x[row * stride + i];
        }
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 3
            for (int v = 0; v < GROUP; v++)
                *(vector *)(sums + row * COLUMNS + c + v * LANES) = own[row][v];
    }
}

/* x: [count, inputs], y: [count, outputs]. Sums run over all inputs, so `chunk` means nothing: the
   signature is that of matmul.c. */
void multiply_fp32(const float *x, const matrix *m, float *y, long count, long inputs, long outputs,
                   long chunk) {
    long blocks = (outputs + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for collapse(2) schedule(static)
    for (long block = 0; block < blocks; block++)
        for (long panel = 0; panel < count; panel += PANEL) {
            float sums[PANEL * COLUMNS], stretch[STEP * COLUMNS];
            long tokens = smaller(PANEL, count - panel), first = block * COLUMNS;
            memset(sums, 0, tokens * COLUMNS * sizeof *sums);
            for (long from = 0; from < inputs; from += STEP) {
                long some = smaller(STEP, inputs - from);
                const float *weights = weights_at(m, block, from, some, stretch);
                for (long row = 0; row < tokens; row += ROWS) {
                    const float *given = x + (panel + row) * inputs + from;
                    float *own = sums + row * COLUMNS;
#define TILE(n) \
    case n: \
        add_tile(given, inputs, weights, some, own, n); \
        break;
                    switch (smaller(ROWS, tokens - row)) {
                        TILE(1)
                        TILE(2)
                        TILE(3)
                        TILE(4)
#if ROWS == 8
                        TILE(5)
                        TILE(6)
                        TILE(7)
                        TILE(8)
#endif
                    }
#undef TILE
                }
            }
            long columns = smaller(COLUMNS, outputs - first);
            for (long row = 0; row < tokens; row++)
                memcpy(y + (panel + row) * outputs + first, sums + row * COLUMNS,
                       columns * sizeof *y);
        }
}

/* ── bf16 ─────────────────────────────────────────────────────────────────── */

#ifdef __AVX512BF16__

/* weights of a block from input `from` on, in pairs: out [count / 2, COLUMNS, 2]; all of one group */
static inline void dequantise_pairs(const matrix *m, long block, long from, long count,
                                    uint16_t *out) {
    static const uint16_t alternating[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                             21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                             11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i order = _mm512_loadu_si512(alternating);
    const __m512 table = _mm512_loadu_ps(nf4);
    float scales[COLUMNS];
    scales_at(m, block, from, scales);
    const uint8_t *codes = codes_at(m, block, from);
    for (int c = 0; c < COLUMNS; c += 16) {
        const __m512 scale = _mm512_loadu_ps(scales + c);
        const uint8_t *here = codes + c;
        uint16_t *to = out + 2 * c;
        for (long pair = 0; pair < count / 2; pair++, to += 2 * COLUMNS) {
            __m512 even, odd;
            if (m->format == NF4) {
                __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)here));
                even = _mm512_permutexvar_ps(both, table);
                odd = _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), table);
                here += COLUMNS;
            } else {
                even = _mm512_cvtepi32_ps(
                    _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)here)));
                odd = _mm512_cvtepi32_ps(
                    _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(here + COLUMNS))));
                here += 2 * COLUMNS;
            }
            __m512i parts = (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(odd, scale),
                                                         _mm512_mul_ps(even, scale));
            _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, parts));
        }
    }
}

/* sums [rows, COLUMNS] += x [rows, 2 pairs] x weights in pairs */
static inline __attribute__((always_inline)) void add_pairs(const uint16_t *x, long stride,
                                                            const uint16_t *weights, long pairs,
                                                            float *sums, const int rows) {
    __m512 own[8][3];
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++) own[row][v] = _mm512_loadu_ps(sums + row * COLUMNS + 16 * v);
    for (long pair = 0; pair < pairs; pair++) {
        const uint16_t *here = weights + pair * COLUMNS * 2;
        __m512bh a = (__m512bh)_mm512_loadu_si512(here);
        __m512bh b = (__m512bh)_mm512_loadu_si512(here + 32);
        __m512bh c = (__m512bh)_mm512_loadu_si512(here + 64);
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++) {
            int32_t two;
            memcpy(&two, x + row * stride + 2 * pair, sizeof two);
            __m512bh given = (__m512bh)_mm512_set1_epi32(two);
            own[row][0] = _mm512_dpbf16_ps(own[row][0], a, given);
            own[row][1] = _mm512_dpbf16_ps(own[row][1], b, given);
            own[row][2] = _mm512_dpbf16_ps(own[row][2], c, given);
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 3
        for (int v = 0; v < 3; v++) _mm512_storeu_ps(sums + row * COLUMNS + 16 * v, own[row][v]);
}

/* x: [count, inputs], y: [count, outputs], inputs even. Sums run over stretches of `chunk` pairs (a
   multiple of STEP / 2, or all), which are then added. The signature is that of matmul.c. */
void multiply_bf16(const uint16_t *x, const matrix *m, uint16_t *y, long count, long inputs,
                   long outputs, long chunk) {
    long blocks = (outputs + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for schedule(static)
    for (long block = 0; block < blocks; block++)
        for (long panel = 0; panel < count; panel += PANEL) {
            float sums[PANEL * COLUMNS], whole[PANEL * COLUMNS];
            uint16_t stretch[STEP * COLUMNS];
            long tokens = smaller(PANEL, count - panel), first = block * COLUMNS;
            for (long start = 0; start < inputs; start += 2 * chunk) {
                long end = smaller(inputs, start + 2 * chunk);
                memset(sums, 0, tokens * COLUMNS * sizeof *sums);
                for (long from = start; from < end; from += STEP) {
                    long some = smaller(STEP, end - from);
                    dequantise_pairs(m, block, from, some, stretch);
                    for (long row = 0; row < tokens; row += 8) {
                        const uint16_t *given = x + (panel + row) * inputs + from;
                        float *own = sums + row * COLUMNS;
#define TILE(n) \
    case n: \
        add_pairs(given, inputs, stretch, some / 2, own, n); \
        break;
                        switch (smaller(8, tokens - row)) {
                            TILE(1)
                            TILE(2)
                            TILE(3)
                            TILE(4)
                            TILE(5)
                            TILE(6)
                            TILE(7)
                            TILE(8)
                        }
#undef TILE
                    }
                }
                for (long i = 0; i < tokens * COLUMNS; i++)
                    whole[i] = start ? sums[i] + whole[i] : sums[i];
            }
            for (long row = 0; row < tokens; row++)
                for (int v = 0; v < 3; v++) {
                    long left = outputs - first - 16 * v;
                    if (left <= 0) break;
                    __mmask16 mask = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
                    __m512 found = _mm512_loadu_ps(whole + row * COLUMNS + 16 * v);
                    uint16_t *to = y + (panel + row) * outputs + first + 16 * v;
                    _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(found));
                }
        }
}
#endif
