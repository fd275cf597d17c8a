/* Weights into the layout of packed_layout.h. */

#include "packed_layout.h"

#include <stdint.h>
#include <string.h>

/* rows of a matrix that lie together, its outputs; [outputs, inputs] */
typedef struct {
    const void *weights;
    long outputs;
} Part;

typedef struct {
    uint32_t *packed;
    const Part *parts; /* in order */
    long count;        /* of parts */
    long outputs;      /* of all parts */
    long inputs;
    long narrow; /* the parts hold bf16, else fp32 */
} Matrix;

/* whether all of these numbers in fp32 are numbers in bf16 as well */
long fits_bf16(const uint32_t *numbers, long count) {
    uint32_t rest = 0;
#pragma omp parallel for simd schedule(static) reduction(| : rest)
    for (long i = 0; i < count; i++) rest |= numbers[i];
    return (rest & 0xffff) == 0;
}

static long blocks_of(const Matrix *matrix) { return (matrix->outputs + COLUMNS - 1) / COLUMNS; }

static void pack_block(const Matrix *matrix, long block) {
    const long inputs = matrix->inputs, narrow = matrix->narrow;
    const long rows = narrow ? (inputs + 1) / 2 : inputs;
    const long whole = narrow ? inputs / 2 : inputs; /* rows that are full */
    const long first = block * COLUMNS, left = matrix->outputs - first;
    const long count = left < COLUMNS ? left : COLUMNS;
    const char *from[COLUMNS];
    const Part *part = matrix->parts;
    for (long c = 0, before = 0; c < count; c++) {
        for (; first + c - before >= part->outputs; part++) before += part->outputs;
        const long bytes = inputs * (narrow ? 2 : 4);
        from[c] = (const char *)part->weights + (first + c - before) * bytes;
    }
    uint32_t *to = matrix->packed + first * rows;
    for (long row = 0; row < rows; row++, to += COLUMNS) {
        if (row < whole)
            for (long c = 0; c < count; c++) memcpy(to + c, from[c] + row * sizeof *to, sizeof *to);
        else /* an odd number of inputs */
            for (long c = 0; c < count; c++) to[c] = ((const uint16_t *)from[c])[2 * row];
        for (long c = count; c < COLUMNS; c++) to[c] = 0;
    }
}

void pack(const Matrix *matrices, long count) {
    long total = 0;
    for (long i = 0; i < count; i++) total += blocks_of(matrices + i);
    /* dynamic: while a model is loaded, a tokenizer is read beside it */
#pragma omp parallel for schedule(dynamic, 4)
    for (long number = 0; number < total; number++) {
        const Matrix *matrix = matrices;
        long block = number;
        for (; block >= blocks_of(matrix); matrix++) block -= blocks_of(matrix);
        pack_block(matrix, block);
    }
}
