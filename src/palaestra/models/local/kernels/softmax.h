/* Softmax of one row in fp32, with a fixed order of summation for all callers, so that sampler and
   learner round equally. It also defines vectors of LANES numbers. */

#ifndef SOFTMAX_H
#define SOFTMAX_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16

typedef float floats __attribute__((vector_size(4 * LANES)));

/* Vectors as wide as the CPU's, PARTS of them for LANES numbers: wider ones, which are added and
   multiplied part by part, are compared and converted number by number. */
#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif
#define PARTS (LANES / WIDTH)

typedef float part __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));

#pragma GCC push_options
#pragma GCC optimize("no-associative-math")

static inline part larger(part a, part b) {
    return (part)(((ints)a & (a > b)) | ((ints)b & (a <= b)));
}

/* e^x for x <= 0, to about 1e-7 relative, at least e^-87 (the polynomial of the Cephes library) */
static inline part exponential_of(part x) {
    x = larger(x, (part){0} - 87.0f);
    ints whole = __builtin_convertvector(x * 1.44269504f - 0.5f, ints); /* to the nearest */
    part n = __builtin_convertvector(whole, part);
    part rest = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    part p = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * rest + 8.3334519073e-3f;
    p = p * rest + 4.1665795894e-2f;
    p = p * rest + 1.6666665459e-1f;
    p = p * rest + 5.0000001201e-1f;
    p = p * rest * rest + rest + 1.0f;
    return p * (part)((whole + 127) << 23);
}

/* Turns the first `length` (at least 1) of `room` (a multiple of LANES) scores into probabilities;
   the rest is overwritten. */
static __attribute__((noinline)) void softmax(float *row, long room, long length) {
    for (long j = length; j < room; j++) row[j] = -INFINITY;
    part top[PARTS], total[PARTS], x;
    for (int i = 0; i < PARTS; i++) top[i] = (part){0} - INFINITY, total[i] = (part){0};
    for (long j = 0; j < room; j += LANES)
        for (int i = 0; i < PARTS; i++) {
            memcpy(&x, row + j + i * WIDTH, sizeof x);
            top[i] = larger(top[i], x);
        }
    float most = top[0][0], sum = 0;
    for (int i = 1; i < LANES; i++) {
        float other = top[i / WIDTH][i % WIDTH];
        most = other > most ? other : most;
    }
    for (long j = 0; j < room; j += LANES)
        for (int i = 0; i < PARTS; i++) {
            memcpy(&x, row + j + i * WIDTH, sizeof x);
            x = exponential_of(x - most);
            memcpy(row + j + i * WIDTH, &x, sizeof x);
            total[i] += x;
        }
    for (int i = 0; i < LANES; i++) sum += total[i / WIDTH][i % WIDTH];
    for (long j = 0; j < room; j += WIDTH) {
        memcpy(&x, row + j, sizeof x);
        x /= sum;
        memcpy(row + j, &x, sizeof x);
    }
}

#pragma GCC pop_options

#endif
