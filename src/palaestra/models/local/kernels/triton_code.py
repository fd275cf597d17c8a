# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Triton kernels of CUDA devices; `triton_kernels.py` calls them on tensors.

Each function is one Triton program: it handles one row, or one tile of a row. Arithmetic is in
fp32, whatever number format is read and written.

Attention reads keys and values in place in their blocks (as in Kwon et al. 2023), and keeps a
running softmax, so that no quadratic matrix is written (Dao et al. 2022).
"""

import triton
import triton.language as tl


@triton.jit
def gated(x, out, inner, TILE: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    there = at < inner
    gate = tl.load(x + row * 2 * inner + at, there).to(tl.float32)
    up = tl.load(x + row * 2 * inner + inner + at, there).to(tl.float32)
    tl.store(out + row * inner + at, gate * tl.sigmoid(gate) * up, there)


@triton.jit
def gated_backward(grad, x, found, inner, TILE: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    there = at < inner
    gate = tl.load(x + row * 2 * inner + at, there).to(tl.float32)
    up = tl.load(x + row * 2 * inner + inner + at, there).to(tl.float32)
    g = tl.load(grad + row * inner + at, there).to(tl.float32)
    s = tl.sigmoid(gate)
    tl.store(found + row * 2 * inner + at, g * up * s * (1 + gate * (1 - s)), there)
    tl.store(found + row * 2 * inner + inner + at, g * gate * s, there)


@triton.jit
def rotate(x, x_row, cos, sin, sign, out, out_row, heads, HALF: tl.constexpr, TILE: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    there = at < heads * HALF
    angle = row * HALF + at % HALF
    c = tl.load(cos + angle, there).to(tl.float32)
    s = tl.load(sin + angle, there).to(tl.float32) * sign
    place = at // HALF * 2 * HALF + at % HALF
    a = tl.load(x + row * x_row + place, there).to(tl.float32)
    b = tl.load(x + row * x_row + place + HALF, there).to(tl.float32)
    tl.store(out + row * out_row + place, a * c - b * s, there)
    tl.store(out + row * out_row + place + HALF, b * c + a * s, there)


@triton.jit
def token_logprobs(logits, targets, temperature, lp, nats, norm, vocabulary, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * vocabulary
    top, mass, pull = float("-inf"), 0.0, 0.0  # pull: of (score - top) exp(score - top)
    for first in range(0, vocabulary, TILE):
        at = first + tl.arange(0, TILE)
        score = tl.load(start + at, at < vocabulary, float("-inf")).to(tl.float32) / temperature
        higher = tl.maximum(top, tl.max(score, 0))
        rest = tl.where(top == float("-inf"), 0.0, tl.exp(top - higher))
        moved = tl.where(top == float("-inf"), 0.0, top - higher)
        pull = rest * (pull + moved * mass)
        below = score - higher
        each = tl.exp(below)
        mass = rest * mass + tl.sum(each, 0)
        pull += tl.sum(tl.where(each > 0, below * each, 0.0), 0)
        top = higher
    normal = top + tl.log(mass)
    chosen = tl.load(start + tl.load(targets + row)).to(tl.float32) / temperature
    tl.store(lp + row, chosen - normal)
    tl.store(nats + row, tl.log(mass) - pull / mass)
    tl.store(norm + row, normal)


@triton.jit
def token_logprobs_backward(
    logits,
    targets,
    temperature,
    norm,
    nats,
    grad,
    pull,
    vocabulary,
    HAS_PULL: tl.constexpr,
    TILE: tl.constexpr,
):
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    there, place = at < vocabulary, logits + row * vocabulary + at
    log = tl.load(place, there, 0.0).to(tl.float32) / temperature - tl.load(norm + row)
    p, g = tl.exp(log), tl.load(grad + row)
    found = tl.where(at == tl.load(targets + row), g, 0.0) - g * p
    if HAS_PULL:
        lean = tl.where(p > 0, p * (log + tl.load(nats + row)), 0.0)
        found -= tl.load(pull + row) * lean
    tl.store(place, found / temperature, there)


@triton.jit
def sample(
    logits,
    temperature,
    uniforms,
    tokens,
    lp,
    nats,
    vocabulary,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    start, heat = logits + row * vocabulary, tl.load(temperature + row)
    by = tl.where(heat == 0, 1.0, heat)
    top, best = float("-inf"), 0
    for first in range(0, vocabulary, TILE):
        at = first + tl.arange(0, TILE)
        score = tl.load(start + at, at < vocabulary, float("-inf")).to(tl.float32) / by
        most = tl.max(score, 0)
        best = tl.where(most > top, first + tl.argmax(score, 0), best)
        # NaN must not be lost here: it makes every sum below NaN
        top = tl.maximum(top, most)
    mass, pull = 0.0, 0.0
    for first in range(0, vocabulary, TILE):
        at = first + tl.arange(0, TILE)
        below = tl.load(start + at, at < vocabulary, float("-inf")).to(tl.float32) / by - top
        each = tl.exp(below)
        mass += tl.sum(each, 0)
        pull += tl.sum(tl.where(each == 0, 0.0, below * each), 0)
    wanted = tl.minimum(tl.load(uniforms + row) * mass, mass * (1 - 2.0**-22))
    token, passed = best, 0.0
    if heat != 0:
        for first in range(0, vocabulary, TILE):
            at = first + tl.arange(0, TILE)
            below = tl.load(start + at, at < vocabulary, float("-inf")).to(tl.float32) / by - top
            each = tl.exp(below)
            after = passed + tl.sum(each, 0)
            if (passed <= wanted) & (after > wanted):
                beyond = (passed + tl.cumsum(each, 0) > wanted) & (each > 0)
                # rounding may leave none beyond: then take the last with positive mass
                last = tl.max(tl.where(each > 0, at, 0), 0)
                found = tl.min(tl.where(beyond, at, vocabulary), 0)
                token = tl.minimum(found, last)
            passed = after
    chosen = tl.load(start + token).to(tl.float32) / by - top
    tl.store(tokens + row, token)
    tl.store(lp + row, chosen - tl.log(mass))
    tl.store(nats + row, tl.log(mass) - pull / mass)


@triton.jit
def write(
    k,
    k_row,
    v,
    v_row,
    keys,
    values,
    slots,
    KV_HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    TILE: tl.constexpr,
):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, TILE)
    slot = tl.load(slots + row).to(tl.int64)
    there = (at < KV_HEADS * D) & (slot >= 0)
    head = (slot // BLOCK) * KV_HEADS + at // D
    place = (head * BLOCK + slot % BLOCK) * D + at % D
    tl.store(keys + place, tl.load(k + row * k_row + at, there), there)
    tl.store(values + place, tl.load(v + row * v_row + at, there), there)


@triton.jit
def attend(
    q,
    keys,
    values,
    out,
    tables,
    width,
    tiles,
    scale,
    SHARE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    D: tl.constexpr,
    QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
    REACH: tl.constexpr,
):
    tile, kv = tl.program_id(0), tl.program_id(1)
    sequence, first = tl.load(tiles + 4 * tile), tl.load(tiles + 4 * tile + 1)
    count, start = tl.load(tiles + 4 * tile + 2), tl.load(tiles + 4 * tile + 3)
    if count > 0:
        m, d = tl.arange(0, ROWS), tl.arange(0, D)
        token, head = m // SHARE, kv * SHARE + m % SHARE
        asks = token < count
        place = ((first + token).to(tl.int64) * (KV_HEADS * SHARE) + head) * D
        asked = tl.load(q + place[:, None] + d, asks[:, None], 0.0)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        mass = tl.zeros([ROWS], tl.float32)
        mixed = tl.zeros([ROWS, D], tl.float32)
        reach = start + count
        for begin in range(0, reach, REACH):
            at = begin + tl.arange(0, REACH)
            near = at < reach
            block = tl.load(tables + sequence * width + at // BLOCK, near, 0).to(tl.int64)
            stored = ((block * KV_HEADS + kv) * BLOCK + at % BLOCK) * D
            key = tl.load(keys + stored[:, None] + d, near[:, None], 0.0)
            score = tl.dot(asked, tl.trans(key), input_precision="ieee") * scale
            score = tl.where(at <= (start + token)[:, None], score, float("-inf"))
            higher = tl.maximum(top, tl.max(score, 1))
            rest, weight = tl.exp(top - higher), tl.exp(score - higher[:, None])
            value = tl.load(values + stored[:, None] + d, near[:, None], 0.0)
            mass = mass * rest + tl.sum(weight, 1)
            mixed = mixed * rest[:, None]
            mixed += tl.dot(weight.to(value.dtype), value, input_precision="ieee")
            top = higher
        tl.store(out + place[:, None] + d, mixed / mass[:, None], asks[:, None])
