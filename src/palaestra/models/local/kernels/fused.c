/* Operations of a transformer between its matrix products, forward and backward.

   Compiled for one number format: BF16 for 16-bit numbers, else fp32. All arithmetic is fp32;
   only stored numbers are rounded. Rows are divided among threads in equal parts, and each thread
   has its own sums over rows, so equal numbers of threads give equal results. */

#include "element.h"
#include "softmax.h"

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

/* e^x to fp32's precision; 0 below -87, and NaN stays NaN. 2^n 2^f with |f| <= 1/2, where
   2^f is a polynomial (Taylor's, of e^(f ln 2)). */
static inline float exponential(float x) {
    float scaled = x * 1.44269504f;
    scaled = scaled < -126.0f ? -126.0f : scaled;
    scaled = scaled > 127.0f ? 127.0f : scaled;
    float whole = rintf(scaled), f = (scaled - whole) * 0.69314718f;
    float p = 1.0f / 720;
    p = p * f + 1.0f / 120;
    p = p * f + 1.0f / 24;
    p = p * f + 1.0f / 6;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    int32_t bits = ((int32_t)whole + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return scaled <= -126.0f ? 0.0f : p * power;
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

void rms_norm(const element *x, const element *weight, element *y, float *scale, long rows,
              long width, float eps) {
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const element *from = x + row * width;
        element *to = y + row * width;
        float sum = 0;
        for (long i = 0; i < width; i++) sum += wide(from[i]) * wide(from[i]);
        float own = 1.0f / sqrtf(sum / width + eps);
        for (long i = 0; i < width; i++) to[i] = narrow(wide(from[i]) * own * wide(weight[i]));
        scale[row] = own;
    }
}

/* sums: [parts, width], zeros; one row per thread */
void rms_norm_backward(const element *grad, const element *x, const element *weight,
                       const float *scale, element *grad_x, float *sums, long rows, long width,
                       long parts) {
#pragma omp parallel for schedule(static) num_threads(parts)
    for (long part = 0; part < parts; part++) {
        float *sum = sums + part * width;
        for (long row = rows * part / parts; row < rows * (part + 1) / parts; row++) {
            const element *given = grad + row * width, *from = x + row * width;
            element *to = grad_x + row * width;
            float own = scale[row], along = 0;
            for (long i = 0; i < width; i++) {
                float product = wide(given[i]) * wide(from[i]) * own;
                sum[i] += product;
                along += product * wide(weight[i]);
            }
            along = along * own / width;
            for (long i = 0; i < width; i++)
                to[i] = narrow(own * (wide(given[i]) * wide(weight[i]) - wide(from[i]) * along));
        }
    }
}

void gated(const element *gate_up, element *out, long rows, long inner) {
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const element *gate = gate_up + 2 * row * inner, *up = gate + inner;
        element *to = out + row * inner;
        for (long i = 0; i < inner; i++) {
            float x = wide(gate[i]);
            to[i] = narrow(x * sigmoid(x) * wide(up[i]));
        }
    }
}

void gated_backward(const element *grad, const element *gate_up, element *found, long rows,
                    long inner) {
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const element *given = grad + row * inner;
        const element *gate = gate_up + 2 * row * inner, *up = gate + inner;
        element *to_gate = found + 2 * row * inner, *to_up = to_gate + inner;
        for (long i = 0; i < inner; i++) {
            float x = wide(gate[i]), open = sigmoid(x), g = wide(given[i]);
            to_gate[i] = narrow(g * wide(up[i]) * open * (1.0f + x * (1.0f - open)));
            to_up[i] = narrow(g * x * open);
        }
    }
}

/* x: [rows, heads, 2 half] at x_stride elements a row, to y likewise; cosines and sines
   [rows, half], the sines times `sign` */
void rotate(const element *x, long x_stride, const element *cosine, const element *sine,
            float sign, element *y, long y_stride, long rows, long heads, long half) {
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const element *c = cosine + row * half, *s = sine + row * half;
        for (long head = 0; head < heads; head++) {
            const element *a = x + row * x_stride + 2 * head * half, *b = a + half;
            element *real = y + row * y_stride + 2 * head * half, *imaginary = real + half;
            for (long i = 0; i < half; i++) {
                float turn = sign * wide(s[i]), keep = wide(c[i]);
                float first = wide(a[i]), second = wide(b[i]);
                real[i] = narrow(first * keep - second * turn);
                imaginary[i] = narrow(second * keep + first * turn);
            }
        }
    }
}

/* Softmax of each row of x [rows, length] in place. Rows come in runs of `count`. The first of a
   run sees length - count + 1 entries, each next row one more; unseen entries become 0. */
void causal_softmax(element *x, long rows, long length, long count) {
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        element *own = x + row * length;
        long seen = length - count + row % count + 1, room = (seen + LANES - 1) / LANES * LANES;
        float values[room];
        for (long i = 0; i < seen; i++) values[i] = wide(own[i]);
        softmax(values, room, seen);
        for (long i = 0; i < seen; i++) own[i] = narrow(values[i]);
        for (long i = seen; i < length; i++) own[i] = 0;
    }
}

/* Of each row of logits [rows, words] over temperature: the target's log-probability, the
   entropy, and the logarithm of the sum of exponentials. */
void token_logprobs(const element *logits, const int64_t *targets, float temperature, float *lp,
                    float *nats, float *norm, long rows, long words) {
    float inverse = 1.0f / temperature;
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const element *own = logits + row * words;
        float top = wide(own[0]), sum = 0, moment = 0;
#pragma omp simd reduction(max : top)
        for (long i = 0; i < words; i++) {
            float value = wide(own[i]);
            top = value > top ? value : top;
        }
        for (long i = 0; i < words; i++) {
            float score = (wide(own[i]) - top) * inverse, mass = exponential(score);
            sum += mass;
            moment += mass * score;
        }
        float rest = logf(sum);
        lp[row] = (wide(own[targets[row]]) - top) * inverse - rest;
        nats[row] = rest - moment / sum;
        norm[row] = top * inverse + rest;
    }
}

/* Samples one token per row of logits [rows, words]: the first whose cumulative probability exceeds
   the row's number in [0, 1); and its log-probability. Temperature 0 takes the most probable token,
   with its log-probability at 1. Probabilities are summed over stretches, then within one. */
#define STRETCH 256

void draw(const element *logits, const float *temperatures, const float *numbers, int64_t *tokens,
          float *lp, float *nats, long rows, long words) {
    long stretches = (words + STRETCH - 1) / STRETCH;
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const element *own = logits + row * words;
        float inverse = temperatures[row] == 0 ? 1.0f : 1.0f / temperatures[row];
        float top = wide(own[0]), sums[stretches];
#pragma omp simd reduction(max : top)
        for (long i = 0; i < words; i++) {
            float value = wide(own[i]);
            top = value > top ? value : top;
        }
        double whole = 0, weighted = 0;
        for (long part = 0; part < stretches; part++) {
            long end = (part + 1) * STRETCH < words ? (part + 1) * STRETCH : words;
            float sum = 0, moment = 0;
            for (long i = part * STRETCH; i < end; i++) {
                float score = (wide(own[i]) - top) * inverse, mass = exponential(score);
                sum += mass;
                moment += mass * (score < -126.0f ? -126.0f : score); /* never 0 times infinity */
            }
            whole += sums[part] = sum;
            weighted += moment;
        }
        long token = 0;
        if (temperatures[row] == 0) {
            while (token < words - 1 && wide(own[token]) != top) token++;
        } else {
            double left = numbers[row] * whole;
            long part = 0, last = stretches - 1;
            while (last > 0 && sums[last] == 0) last--; /* rounding may exceed the total */
            while (part < last && left >= sums[part]) left -= sums[part++];
            token = part * STRETCH;
            long end = token + STRETCH < words ? token + STRETCH : words, found = token;
            for (long i = token; i < end; i++) {
                float mass = exponential((wide(own[i]) - top) * inverse);
                if (mass > 0) found = i;
                if (left < mass) break;
                left -= mass;
            }
            token = found;
        }
        tokens[row] = token;
        lp[row] = (wide(own[token]) - top) * inverse - logf((float)whole);
        nats[row] = logf((float)whole) - (float)(weighted / whole);
    }
}

/* Replaces the logits by their gradient. `pull`, the entropies' gradient, may be null. */
void token_logprobs_backward(element *logits, const int64_t *targets, float temperature,
                             const float *norm, const float *nats, const float *grad,
                             const float *pull, long rows, long words) {
    float inverse = 1.0f / temperature;
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        element *own = logits + row * words;
        float chosen = wide(own[targets[row]]) * inverse - norm[row];
        float g = grad[row], e = pull ? pull[row] : 0, entropy = nats[row];
        for (long i = 0; i < words; i++) {
            float score = wide(own[i]) * inverse - norm[row];
            own[i] = narrow(-exponential(score) * (g + e * (score + entropy)) * inverse);
        }
        float p = exponential(chosen);
        own[targets[row]] = narrow((g - p * (g + e * (chosen + entropy))) * inverse);
    }
}

/* master += grad, where the gradient may be 16-bit */
void widen_add(float *master, const element *grad, long count) {
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < count; i++) master[i] += wide(grad[i]);
}
