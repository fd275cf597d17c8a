/* The number format that a file is compiled for: 16-bit numbers with BF16, else fp32. Arithmetic is
   fp32; only stored numbers are rounded. */

#ifndef ELEMENT_H
#define ELEMENT_H

#include <stdint.h>
#include <string.h>

static inline float from_bf16(uint16_t narrow) {
    uint32_t bits = (uint32_t)narrow << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* to the nearest, ties to even */
static inline uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#ifdef BF16
typedef uint16_t element;

static inline float wide(element narrow) { return from_bf16(narrow); }
static inline element narrow(float value) { return to_bf16(value); }
#else
typedef float element;

static inline float wide(element value) { return value; }
static inline element narrow(float value) { return value; }
#endif

#endif
