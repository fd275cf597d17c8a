/* The blocks of a transformer for tokens that each read their sequence's past in place: one call
   for all layers. It computes nothing that the functions it is given do not compute one by one (the
   compiled ones of matmul.c, kernels.c and paged_attention.c), so the results are theirs to the
   bit; what it saves is the way to and from Python between them, which takes as long as they do
   where few tokens run. Numbers are of 16 bits (bf16). */

#include <stdint.h>
#include <string.h>

typedef uint16_t element;

typedef struct {
    void (*rms_norm)(const element *, const element *, element *, float *, long, long, float);
    void (*rotate)(const element *, long, const element *, const element *, float, element *, long,
                   long, long, long);
    void (*gated)(const element *, element *, long, long);
    void (*multiply)(const element *, const element *, element *, long, long, long, long);
    void (*attend)(const element *, long, const element *, const element *, element *,
                   const int32_t *, long, const int32_t *, const int32_t *, long, long, float);
} functions;

/* weights as `rms_norm` and `multiply` read them; keys and values as `attend` does */
typedef struct {
    const element *attention_norm, *qkv, *out, *mlp_norm, *gate_up, *down;
    element *keys, *values;
} layer;

/* features; `*_chunk` are the stretches in which `multiply` adds up */
typedef struct {
    long width, heads, kv_heads, head_dim, inner;
    long width_chunk, heads_chunk, inner_chunk;
    float eps, scale;
} sizes;

static inline float wide(element narrow) {
    uint32_t bits = (uint32_t)narrow << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* x += y, rounded to the nearest, ties to even */
static void add(element *x, const element *y, long count) {
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < count; i++) {
        float sum = wide(x[i]) + wide(y[i]);
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        x[i] = (element)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
}

/* x: [tokens, width], changed in place. cosine, sine: [tokens, head_dim / 2]. written: for each token
   and key head, which row of head_dim numbers its key and its value are, [tokens, kv_heads].
   tables, rows, lengths: see `attend`. The rest is room: normed and moved [tokens, width], qkv
   [tokens, heads + 2 kv_heads, head_dim], mixed [tokens, heads, head_dim], gate_up [tokens, 2 inner],
   opened [tokens, inner], scales [tokens]. */
void run(const functions *f, const sizes *s, const layer *layers, long count, element *x,
         const element *cosine, const element *sine, const int64_t *written, const int32_t *tables,
         long table_width, const int32_t *rows, const int32_t *lengths, long tokens,
         element *normed, element *moved, element *qkv, element *mixed, element *gate_up,
         element *opened, float *scales) {
    const long d = s->head_dim, turned = s->heads + s->kv_heads;
    const long all = (turned + s->kv_heads) * d, own = s->heads * d;
    for (const layer *l = layers; l < layers + count; l++) {
        f->rms_norm(x, l->attention_norm, normed, scales, tokens, s->width, s->eps);
        f->multiply(normed, l->qkv, qkv, tokens, s->width, all, s->width_chunk);
        f->rotate(qkv, all, cosine, sine, 1.0f, qkv, all, tokens, turned, d / 2);
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
        add(x, moved, tokens * s->width);
        f->rms_norm(x, l->mlp_norm, normed, scales, tokens, s->width, s->eps);
        f->multiply(normed, l->gate_up, gate_up, tokens, s->width, 2 * s->inner, s->width_chunk);
        f->gated(gate_up, opened, tokens, s->inner);
        f->multiply(opened, l->down, moved, tokens, s->inner, s->width, s->inner_chunk);
        add(x, moved, tokens * s->width);
    }
}
