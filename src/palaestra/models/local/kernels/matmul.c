/* Products of 16-bit activations with packed 16-bit weights, for CPUs with AVX512-BF16.

   The weights are stored as packed_layout.h says, so that one pass over a block reads it sequentially. A tile of ROWS x COLUMNS results stays in
   registers. Sums are fp32: they run in the order of the inputs over stretches of `chunk` pairs,
   which are then added, and rounded once at the end. oneDNN sums in the same way; the caller finds
   its stretch length by trial. While a block is in use, the next one is prefetched. */

#include "packed_layout.h"

#include <stdint.h>

#define ROWS 8

#ifdef __AVX512BF16__
#include <immintrin.h>
#include <string.h>

static inline __attribute__((always_inline)) void tile(const uint16_t *x, const uint16_t *block,
                                                       uint16_t *y, long inputs, long outputs,
                                                       long chunk, long left,
                                                       const uint16_t *ahead, long first,
                                                       long apart, const int rows) {
    __m512 sums[ROWS][3], whole[ROWS][3]; /* COLUMNS are three vectors */
    long wanted = first, pairs = inputs / 2;
    for (long from = 0; from < pairs; from += chunk) {
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++)
            sums[row][0] = sums[row][1] = sums[row][2] = _mm512_setzero_ps();
        long to = from + chunk < pairs ? from + chunk : pairs;
        for (long pair = from; pair < to; pair++) {
            const uint16_t *here = block + pair * COLUMNS * 2;
            __m512bh a = (__m512bh)_mm512_loadu_si512(here);
            __m512bh b = (__m512bh)_mm512_loadu_si512(here + 32);
            __m512bh c = (__m512bh)_mm512_loadu_si512(here + 64);
            if (pair == wanted) {
                const char *there = (const char *)(ahead + pair * COLUMNS * 2);
                _mm_prefetch(there, _MM_HINT_T1);
                _mm_prefetch(there + 64, _MM_HINT_T1);
                _mm_prefetch(there + 128, _MM_HINT_T1);
                wanted += apart;
            }
#pragma GCC unroll 8
            for (int row = 0; row < rows; row++) {
                int32_t two;
                memcpy(&two, x + row * inputs + 2 * pair, sizeof two);
                __m512bh given = (__m512bh)_mm512_set1_epi32(two);
                sums[row][0] = _mm512_dpbf16_ps(sums[row][0], a, given);
                sums[row][1] = _mm512_dpbf16_ps(sums[row][1], b, given);
                sums[row][2] = _mm512_dpbf16_ps(sums[row][2], c, given);
            }
        }
#pragma GCC unroll 8
        for (int row = 0; row < rows; row++)
            for (int part = 0; part < 3; part++)
                whole[row][part] =
                    from ? _mm512_add_ps(sums[row][part], whole[row][part]) : sums[row][part];
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
        for (int part = 0; part < 3; part++) {
            long count = left - 16 * part;
            if (count <= 0) break;
            __mmask16 mask = count >= 16 ? 0xffff : (__mmask16)((1u << count) - 1);
            __m256i narrow = (__m256i)_mm512_cvtneps_pbh(whole[row][part]);
            _mm256_mask_storeu_epi16(y + row * outputs + 16 * part, mask, narrow);
        }
}

/* x: [count, inputs], y: [count, outputs]; packed: [blocks, inputs / 2, COLUMNS, 2] */
void multiply(const uint16_t *x, const uint16_t *packed, uint16_t *y, long count, long inputs,
              long outputs, long chunk) {
    long blocks = (outputs + COLUMNS - 1) / COLUMNS, tiles = (count + ROWS - 1) / ROWS;
#pragma omp parallel for schedule(static)
    for (long number = 0; number < blocks; number++) {
        const uint16_t *block = packed + number * inputs * COLUMNS;
        const uint16_t *ahead = number + 1 < blocks ? block + inputs * COLUMNS : block;
        uint16_t *to = y + number * COLUMNS;
        long left = outputs - number * COLUMNS;
        for (long at = 0; at < tiles; at++) {
            long row = at * ROWS, rows = count - row < ROWS ? count - row : ROWS;
            const uint16_t *from = x + row * inputs;
            uint16_t *out = to + row * outputs;
#define TILE(n) \
    case n: \
        tile(from, block, out, inputs, outputs, chunk, left, ahead, at, tiles, n); \
        break;
            switch (rows) {
                TILE(1)
                TILE(2)
                TILE(3)
                TILE(4)
                TILE(5)
                TILE(6)
                TILE(7)
                TILE(8)
            }
        }
    }
}
#endif
