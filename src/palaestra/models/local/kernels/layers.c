/* The blocks of a transformer for tokens that each read their sequence's past in place: one call
   for all layers. It only calls the compiled functions of matmul.c or packed_matmul.c, fused.c and
   paged_attention.c, so the results equal theirs to the bit. It saves the calls from Python, which take as long as the
   functions themselves if few tokens run. Compiled for one number format, see element.h. */

#include "element.h"

#include <stdint.h>
#include <string.h>

typedef struct {
    void (*rms_norm)(const element *, const element *, element *, float *, long, long, float);
    void (*rotate)(const element *, long, const element *, const element *, float, element *, long,
                   long, long, long);
    void (*gated)(const element *, element *, long, long);
    void (*multiply)(const element *, const void *, element *, long, long, long, long);
    void (*attend)(const element *, long, const element *, const element *, element *,
                   const int32_t *, long, const int32_t *, const int32_t *, long, long, float);
} functions;

/* weights as `rms_norm` and `multiply` read them; keys and values as `attend` does. Norms and biases
   that a network does not have are NULL. */
typedef struct {
    const element *attention_norm;
    const void *qkv;
    const element *qkv_bias, *q_norm, *k_norm;
    const void *out;
    const element *out_bias, *attention_after_norm, *mlp_norm;
    const void *gate_up;
    const element *gate_up_bias;
    const void *down;
    const element *down_bias, *mlp_after_norm;
    element *keys, *values;
} layer;

/* features; `*_chunk` are the stretches over which `multiply` sums; q_rows and k_rows: of a token's
   queries and keys, how many rows are normed, each by itself; residual: times what is added */
typedef struct {
    long width, heads, kv_heads, head_dim, inner;
    long width_chunk, heads_chunk, inner_chunk;
    long q_rows, k_rows;
    float eps, scale, residual;
} sizes;

#define MANY 64 /* tokens whose keys and values are worth two threads */

/* x += y */
static void add(element *x, const element *y, long count) {
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < count; i++) x[i] = narrow(wide(x[i]) + wide(y[i]));
}

static void times(element *x, float factor, long count) {
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < count; i++) x[i] = narrow(wide(x[i]) * factor);
}

/* each row of x [tokens, width] += bias, unless that is NULL */
static void add_bias(element *x, const element *bias, long tokens, long width) {
    if (!bias) return;
#pragma omp parallel for schedule(static)
    for (long t = 0; t < tokens; t++) {
        element *own = x + t * width;
        for (long i = 0; i < width; i++) own[i] = narrow(wide(own[i]) + wide(bias[i]));
    }
}

/* Norms `rows` rows of `length` features of each token of x, at `stride` elements a token, unless
   `weight` is NULL. buffer: [tokens, rows * length]; scales: [tokens, rows]. */
static void norm_heads(const functions *f, element *x, long stride, const element *weight,
                       long tokens, long rows, long length, float eps, element *buffer,
                       float *scales) {
    if (!weight) return;
#pragma omp parallel for schedule(static)
    for (long t = 0; t < tokens; t++) {
        element *own = buffer + t * rows * length;
        f->rms_norm(x + t * stride, weight, own, scales + t * rows, rows, length, eps);
        memcpy(x + t * stride, own, rows * length * sizeof *own);
    }
}

/* the norm of x [tokens, width] in `buffer`; x itself if `weight` is NULL */
static const element *normed_by(const functions *f, const sizes *s, const element *x,
                                const element *weight, long tokens, element *buffer,
                                float *scales) {
    if (!weight) return x;
    f->rms_norm(x, weight, buffer, scales, tokens, s->width, s->eps);
    return buffer;
}

/* x += what half a layer found; `found` and `buffer` may change */
static void add_found(const functions *f, const sizes *s, element *x, element *found,
                      const element *after, long tokens, element *buffer, float *scales) {
    element *last = after ? buffer : found;
    normed_by(f, s, found, after, tokens, buffer, scales);
    if (s->residual != 1.0f) times(last, s->residual, tokens * s->width);
    add(x, last, tokens * s->width);
}

/* x: [tokens, width], changed in place. angles: of each layer, cosines and sines, each [tokens,
   head_dim / 2]. written: for each token and key head, the row (of head_dim
   numbers) of its key and its value, [tokens, kv_heads]. tables, rows, lengths: see `attend`. The
   rest are buffers: normed and moved [tokens, width], qkv [tokens, heads + 2 kv_heads, head_dim],
   mixed [tokens, heads, head_dim], gate_up [tokens, 2 inner], opened [tokens, inner], scales
   [tokens, heads]. */
void run(const functions *f, const sizes *s, const layer *layers, long count, element *x,
         const element *const *angles, const int64_t *written, const int32_t *tables,
         long table_width, const int32_t *rows, const int32_t *lengths, long tokens,
         element *normed, element *moved, element *qkv, element *mixed, element *gate_up,
         element *opened, float *scales) {
    const long d = s->head_dim, turned = s->heads + s->kv_heads;
    const long all = (turned + s->kv_heads) * d, own = s->heads * d;
    for (const layer *l = layers; l < layers + count; l++, angles += 2) {
        const element *given = normed_by(f, s, x, l->attention_norm, tokens, normed, scales);
        f->multiply(given, l->qkv, qkv, tokens, s->width, all, s->width_chunk);
        add_bias(qkv, l->qkv_bias, tokens, all);
        norm_heads(f, qkv, all, l->q_norm, tokens, s->q_rows, own / s->q_rows, s->eps, mixed,
                   scales);
        norm_heads(f, qkv + own, all, l->k_norm, tokens, s->k_rows, s->kv_heads * d / s->k_rows,
                   s->eps, mixed, scales);
        f->rotate(qkv, all, angles[0], angles[1], 1.0f, qkv, all, tokens, turned, d / 2);
#pragma omp parallel for schedule(static) if (tokens > MANY)
        for (long t = 0; t < tokens; t++)
            for (long g = 0; g < s->kv_heads; g++) {
                const long to = written[t * s->kv_heads + g] * d;
                const element *key = qkv + t * all + (s->heads + g) * d;
                memcpy(l->keys + to, key, d * sizeof *key);
                memcpy(l->values + to, key + s->kv_heads * d, d * sizeof *key);
            }
        f->attend(qkv, all, l->keys, l->values, mixed, tables, table_width, rows, lengths, tokens,
                  s->kv_heads, s->scale);
        f->multiply(mixed, l->out, moved, tokens, own, s->width, s->heads_chunk);
        add_bias(moved, l->out_bias, tokens, s->width);
        add_found(f, s, x, moved, l->attention_after_norm, tokens, normed, scales);
        given = normed_by(f, s, x, l->mlp_norm, tokens, normed, scales);
        f->multiply(given, l->gate_up, gate_up, tokens, s->width, 2 * s->inner, s->width_chunk);
        add_bias(gate_up, l->gate_up_bias, tokens, 2 * s->inner);
        f->gated(gate_up, opened, tokens, s->inner);
        f->multiply(opened, l->down, moved, tokens, s->inner, s->width, s->inner_chunk);
        add_bias(moved, l->down_bias, tokens, s->width);
        add_found(f, s, x, moved, l->mlp_after_norm, tokens, normed, scales);
    }
}
