/* Weights into the layout of packed_layout.h. */

#include "packed_layout.h"

#include <stdint.h>
#include <string.h>

/* whether all of these numbers in fp32 are numbers in bf16 as well */
long fits_bf16(const uint32_t *numbers, long count) {
    uint32_t rest = 0;
#pragma omp parallel for simd schedule(static) reduction(| : rest)
    for (long i = 0; i < count; i++) rest |= numbers[i];
    return (rest & 0xffff) == 0;
}

/* Packs weights [outputs, inputs], of bf16 if `narrow`, else of fp32: the matrix's outputs from
   `first` on. Parts of a matrix are packed in order; the last one's outputs are followed by zeros. */
void pack(const void *weights, uint32_t *packed, long first, long outputs, long inputs,
          long narrow) {
    const uint16_t *halves = weights;
    const uint32_t *numbers = weights;
    const long rows = narrow ? (inputs + 1) / 2 : inputs, end = first + outputs;
    const long whole = narrow ? inputs / 2 : inputs; /* rows that are full */
    /* dynamic: while a model is loaded, a tokenizer is read beside it */
#pragma omp parallel for schedule(dynamic, 4)
    for (long block = first / COLUMNS; block < (end + COLUMNS - 1) / COLUMNS; block++) {
        const long base = block * COLUMNS, start = base < first ? first - base : 0;
        const long stop = end - base < COLUMNS ? end - base : COLUMNS;
        uint32_t *to = packed + base * rows;
        for (long row = 0; row < rows; row++, to += COLUMNS) {
            if (row == whole) /* an odd number of inputs */
                for (long c = start; c < stop; c++)
                    to[c] = halves[(base + c - first) * inputs + 2 * row];
            else if (narrow)
                for (long c = start; c < stop; c++)
                    memcpy(to + c, halves + (base + c - first) * inputs + 2 * row, sizeof *to);
            else
                for (long c = start; c < stop; c++)
                    to[c] = numbers[(base + c - first) * inputs + row];
            for (long c = stop; c < COLUMNS; c++) to[c] = 0;
        }
    }
}
