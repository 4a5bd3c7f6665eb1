"""Triton kernels between evaluations of a field: each does at once what PyTorch would do in many small operations.

All of the state is one group, in float32. The *clock* (times, sizes, decisions) is float64, as in solvers/adaptive.py.
"""

# Triton's own language in Python's clothes: it has no types.
# mypy: ignore-errors

import triton
import triton.language as tl

from windermere.solvers import adaptive

BLOCK = 1024
SAFETY = tl.constexpr(adaptive.SAFETY)
MOST_GROWTH = tl.constexpr(adaptive.MOST_GROWTH)
MOST_SHRINKING = tl.constexpr(adaptive.MOST_SHRINKING)


@triton.jit
def _weighted(
    at,
    mask,
    count,
    k0,
    k1,
    k2,
    k3,
    k4,
    k5,
    k6,
    w0,
    w1,
    w2,
    w3,
    w4,
    w5,
    w6,
    BLOCK: tl.constexpr,
):
    """sum_i w_i k_i over the first `count` of them."""
    total = tl.zeros((BLOCK,), tl.float32)
    if count > 0:
        total += w0 * tl.load(k0 + at, mask)
    if count > 1:
        total += w1 * tl.load(k1 + at, mask)
    if count > 2:
        total += w2 * tl.load(k2 + at, mask)
    if count > 3:
        total += w3 * tl.load(k3 + at, mask)
    if count > 4:
        total += w4 * tl.load(k4 + at, mask)
    if count > 5:
        total += w5 * tl.load(k5 + at, mask)
    if count > 6:
        total += w6 * tl.load(k6 + at, mask)
    return total


@triton.jit(do_not_specialize=["h", "count", "size", "advance"])
def move(
    out,
    base,
    h,
    number,
    size,
    count,
    advance,
    k0,
    k1,
    k2,
    k3,
    k4,
    k5,
    k6,
    w0,
    w1,
    w2,
    w3,
    w4,
    w5,
    w6,
    BASED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = base + h sum_i w_i k_i; and the step's number advances."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    total = tl.load(h) * _weighted(at, mask, count, k0, k1, k2, k3, k4, k5, k6, w0, w1, w2, w3, w4, w5, w6, BLOCK)
    if BASED:
        total += tl.load(base + at, mask)
    tl.store(out + at, total, mask)
    if tl.program_id(0) == 0:
        tl.store(number, tl.load(number) + advance)


@triton.jit(do_not_specialize=["size", "columns"])
def fetch(
    z,
    states,
    table,
    row,
    number,
    size,
    columns,
    STORES: tl.constexpr,
    LOADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The row of the next step from the table; its state is kept (STORES), or fetched from those kept (LOADS)."""
    n = tl.load(number)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    if STORES:
        tl.store(states + n * size + at, tl.load(z + at, mask), mask)
    if LOADS:
        tl.store(z + at, tl.load(states + n * size + at, mask), mask)
    if tl.program_id(0) == 0:
        column = tl.arange(0, WIDTH)
        inside = column < columns
        tl.store(row + column, tl.load(table + n * columns + column, inside), inside)


@triton.jit(do_not_specialize=["stages", "room"])
def aim(
    numbers,
    seen,
    number,
    fractions,
    row,
    scratch,
    stages,
    room,
    KEPT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """What to try next. numbers: t, h, end; scratch: h tried, its sign on, where it leads, whether it is tried."""
    t, h, end = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    active = (t != end) & (tl.load(seen + 1) == 0)
    if KEPT:
        active = active & (tl.load(number) < room)
    left = tl.abs(end - t)
    tried = tl.where(h >= left * (1 - 1e-10), left, h)
    tried = tl.where(active, tried, 0.0)
    signed = tl.where(end >= t, tried, -tried)
    reached = tl.where(active & (tried == left), end, t + signed)
    column = tl.arange(0, WIDTH)
    inside = column < stages
    c = tl.load(fractions + column, inside, 0.0)
    moment = tl.where(c == 1.0, reached, t + c * signed)
    tl.store(row + column, moment.to(tl.float32), inside)
    tl.store(row + stages, signed.to(tl.float32))
    tl.store(scratch, tried)
    tl.store(scratch + 1, signed)
    tl.store(scratch + 2, reached)
    tl.store(scratch + 3, active.to(tl.float64))


@triton.jit(do_not_specialize=["row", "size", "count"])
def measure(
    partial,
    z,
    stepped,
    row,
    numbers,
    size,
    count,
    k0,
    k1,
    k2,
    k3,
    k4,
    k5,
    k6,
    w0,
    w1,
    w2,
    w3,
    w4,
    w5,
    w6,
    BLOCK: tl.constexpr,
):
    """Each block's sum of squares of the estimated error over what it may be."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    error = tl.load(row) * _weighted(at, mask, count, k0, k1, k2, k3, k4, k5, k6, w0, w1, w2, w3, w4, w5, w6, BLOCK)
    rtol, atol = tl.load(numbers + 3).to(tl.float32), tl.load(numbers + 4).to(tl.float32)
    largest = tl.maximum(tl.abs(tl.load(z + at, mask)), tl.abs(tl.load(stepped + at, mask)))
    ratio = tl.where(mask, error / (atol + rtol * largest), 0.0)
    tl.store(partial + tl.program_id(0), tl.sum((ratio * ratio).to(tl.float64)))


@triton.jit(do_not_specialize=["blocks", "size", "stages"])
def decide(
    partial,
    numbers,
    limits,
    scratch,
    costs,
    seen,
    known,
    number,
    table,
    nodes,
    row,
    blocks,
    size,
    stages,
    order,
    KEPT: tl.constexpr,
    KNOWS: tl.constexpr,
    REUSE: tl.constexpr,
    WIDTH: tl.constexpr,
    LOOP: tl.constexpr,
):
    """Accept or reject the try, propose the next one, and count; scratch[4] is whether it was accepted."""
    total = tl.sum(tl.zeros((LOOP,), tl.float64))
    for first in range(0, blocks, LOOP):
        place = first + tl.arange(0, LOOP)
        total += tl.sum(tl.load(partial + place, place < blocks, 0.0))
    ratio = tl.sqrt((total / size).to(tl.float64))
    t, h, end = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    tried, reached, active = tl.load(scratch), tl.load(scratch + 2), tl.load(scratch + 3) != 0
    finite = (ratio < float("inf")) & (ratio == ratio)
    accept = active & (ratio <= 1)
    factor = SAFETY * tl.exp2(-tl.log2(ratio) / order)
    least = tl.where(ratio < 1, 1.0, MOST_SHRINKING)
    proposal = tried * tl.minimum(tl.maximum(factor, least), MOST_GROWTH)
    proposal = tl.where(accept, tl.maximum(proposal, h), proposal)
    h = tl.where(active & finite, proposal, h)
    if KEPT:
        n = tl.load(number)
        column = tl.arange(0, WIDTH)
        tl.store(table + n * (stages + 1) + column, tl.load(row + column, column <= stages), column <= stages)
        tl.store(nodes + 2 * n, t)
        tl.store(nodes + 2 * n + 1, reached)
        tl.store(scratch + 5, n.to(tl.float64))
        tl.store(number, n + accept.to(tl.int64))
        tl.store(seen + 2, n + accept.to(tl.int64))
    t = tl.where(accept, reached, t)
    stale = active & (tl.load(known) == 0)
    rejected = active & (accept == 0)
    evaluations = active.to(tl.int64) * (stages - 1) + stale.to(tl.int64)
    tl.store(costs, tl.load(costs) + evaluations)
    accepted_now = tl.load(costs + 1) + accept.to(tl.int64)
    rejected_now = tl.load(costs + 2) + rejected.to(tl.int64)
    tl.store(costs + 1, accepted_now)
    tl.store(costs + 2, rejected_now)
    if KNOWS and not REUSE:
        now = (accept == 0) & ((tl.load(known) != 0) | stale)
        tl.store(known, tl.where(active, now.to(tl.int8), tl.load(known).to(tl.int8)))
    finish, smallest, budget = tl.load(limits + 1), tl.load(limits + 2), tl.load(limits + 3)
    spent = ((accepted_now + rejected_now).to(tl.float64) >= budget) & (t != finish)
    lost = active & (finite == 0)
    trouble = lost | (rejected & (h < smallest)) | (active & spent)
    tl.store(numbers, t)
    tl.store(numbers + 1, h)
    tl.store(seen, (t == end).to(tl.int64))
    tl.store(seen + 1, tl.load(seen + 1) | trouble.to(tl.int64))
    tl.store(scratch + 4, accept.to(tl.float64))


@triton.jit(do_not_specialize=["size"])
def commit(
    z,
    stepped,
    k,
    last,
    states,
    scratch,
    size,
    KEPT: tl.constexpr,
    REUSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Go on from where an accepted try led; keep the state before it."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    accept = tl.load(scratch + 4) != 0
    before = tl.load(z + at, mask)
    if KEPT:
        n = tl.load(scratch + 5).to(tl.int64)
        tl.store(states + n * size + at, before, mask)
    tl.store(z + at, tl.where(accept, tl.load(stepped + at, mask), before), mask)
    if REUSE:
        tl.store(k + at, tl.where(accept, tl.load(last + at, mask), tl.load(k + at, mask)), mask)
