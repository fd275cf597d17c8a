/* Softmax of one row in fp32, with a fixed order of summation for all callers, so that sampler and
   learner round equally. It also defines vectors of LANES numbers. */

#ifndef SOFTMAX_H
#define SOFTMAX_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

#pragma GCC push_options
#pragma GCC optimize("no-associative-math")

static inline floats larger(floats a, floats b) {
    return (floats)(((ints)a & (a > b)) | ((ints)b & (a <= b)));
}

/* e^x for x <= 0, to about 1e-7 relative, at least e^-87 (the polynomial of the Cephes library) */
static inline floats exponential_of(floats x) {
    x = larger(x, (floats){0} - 87.0f);
    ints whole = __builtin_convertvector(x * 1.44269504f - 0.5f, ints); /* to the nearest */
    floats n = __builtin_convertvector(whole, floats);
    floats rest = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    floats p = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * rest + 8.3334519073e-3f;
    p = p * rest + 4.1665795894e-2f;
    p = p * rest + 1.6666665459e-1f;
    p = p * rest + 5.0000001201e-1f;
    p = p * rest * rest + rest + 1.0f;
    return p * (floats)((whole + 127) << 23);
}

/* Turns the first `length` (at least 1) of `room` (a multiple of LANES) scores into probabilities;
   the rest is overwritten. */
static __attribute__((noinline)) void softmax(float *row, long room, long length) {
    for (long j = length; j < room; j++) row[j] = -INFINITY;
    floats top = (floats){0} - INFINITY, total = {0}, x;
    for (long j = 0; j < room; j += LANES) {
        memcpy(&x, row + j, sizeof x);
        top = larger(top, x);
    }
    float most = top[0], sum = 0;
    for (int i = 1; i < LANES; i++) most = top[i] > most ? top[i] : most;
    for (long j = 0; j < room; j += LANES) {
        memcpy(&x, row + j, sizeof x);
        x = exponential_of(x - most);
        memcpy(row + j, &x, sizeof x);
        total += x;
    }
    for (int i = 0; i < LANES; i++) sum += total[i];
    for (long j = 0; j < room; j += LANES) {
        memcpy(&x, row + j, sizeof x);
        x /= sum;
        memcpy(row + j, &x, sizeof x);
    }
}

#pragma GCC pop_options

#endif
