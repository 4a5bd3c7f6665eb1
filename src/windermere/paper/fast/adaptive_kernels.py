"""Triton kernels: a whole adaptive solve of the sphere networks' field, there and back.

On the way there one program has a member's whole batch, as its error decides on the steps: it does what
solvers/adaptive.py does, for one group. Whatever is out of the ordinary is TROUBLE: the host then does it all again,
and says what is wrong. On the way back a program has one tile of samples, as in kernels.py. Both go from stage to stage
in a loop, with the tableau in memory: unrolled, six stages would take minutes to compile.

Shapes: as in kernels.py; room for N accepted steps, K stages that propagate (KEPT) of all STAGES. A *table* is a, b and
the weights of the error, [STAGES + 2, STAGES], in float64 as are all times and sizes. *Rates* are a tuple of states.
"""
# Triton's own language in Python's clothes: it has no types, and cannot unpack a tuple into another.
# mypy: ignore-errors
# ruff: noqa: RUF005

import triton
import triton.language as tl

from windermere.paper.fast.kernels import (
    _begin_back,
    _begin_gradients,
    _end_back,
    _load_state,
    _load_weights,
    _mixed,
    _plus,
    _pulled_back,
    _rate,
    _scaled,
    _store_state,
)

DONE, FULL, TROUBLE, RUNNING = (tl.constexpr(status) for status in range(4))
"""What is said of a member's solve: it has come to its end, to that of its room, or out of the ordinary."""


@triton.jit
def _double(value):
    """A number as it is: where Triton promotes one by itself, it has been float32 before."""
    return tl.full((), value, tl.float64)


@triton.jit
def _evaluated(x, weights, POINTS: tl.constexpr, PRECISION: tl.constexpr):
    return _rate(_mixed(x, weights, POINTS, PRECISION), weights, POINTS)


@triton.jit
def _combined(z, h, rates, table, row, STAGES: tl.constexpr, POINTS: tl.constexpr):
    """z + h sum_i w_i k_i with a row of the table; rates that are not there yet weigh nothing."""
    for i in tl.static_range(STAGES):
        z = _plus(z, (h * tl.load(table + row * STAGES + i)).to(tl.float32), rates[i], POINTS)
    return z


@triton.jit
def _select(condition, one, other, POINTS: tl.constexpr):
    state = ()
    for p in tl.static_range(POINTS):
        state = state + (tl.where(condition, one[p], other[p]),)
    return state


@triton.jit
def _norm(value, z, other, rtol, atol, real, entries, POINTS: tl.constexpr):
    """Root mean square in units of the tolerance, where |z| is the larger of two."""
    squares = tl.zeros_like(value[0])
    for p in tl.static_range(POINTS):
        ratio = value[p] / (atol + rtol * tl.maximum(tl.abs(z[p]), tl.abs(other[p])))
        squares += ratio * ratio
    return tl.sqrt(tl.sum(tl.where(real, squares, 0.0), axis=0).to(tl.float64) / entries)


@triton.jit
def _root(x, ORDER: tl.constexpr):
    return tl.exp(tl.log(x) / ORDER)


@triton.jit
def _is_finite(x):
    return tl.abs(x) < float("inf")


@triton.jit
def _probing_step(d0, d1):
    """As in initial_step.py."""
    tiny = tl.minimum(d0, d1) < _double(1e-5)
    return tl.where(tiny, _double(1e-6), 0.01 * d0 / tl.where(tiny, _double(1.0), d1))


@triton.jit
def _proposed_step(h0, d1, d2, ORDER: tl.constexpr):
    """As in initial_step.py; the order is one more than the embedded solution's."""
    largest = tl.maximum(d1, d2)
    flat = largest < _double(1e-15)
    h1 = _root(0.01 / tl.where(flat, _double(1.0), largest), ORDER)
    return tl.minimum(100 * h0, tl.where(flat, tl.maximum(_double(1e-6), 1e-3 * h0), h1))


@triton.jit(do_not_specialize=("samples", "room", "budget"))
def adapt_forward(
    starts,  # [S, B, d]
    ends,  # [S, B, d]
    inputs,  # [S, room, K, B, d]: of each accepted step's stages, where KEEP
    sizes,  # [S, room]: of the accepted steps, float32, where KEEP
    found,  # [4, S]: accepted and rejected steps, evaluations, status; int32
    table,
    limits,  # [S, 5]: begin, finish, smallest step, rtol, atol
    lift,
    lift_bias,
    mix,
    mix_bias,
    lower,
    lower_bias,
    samples,
    room,
    budget,
    STAGES: tl.constexpr,
    KEPT: tl.constexpr,
    FSAL: tl.constexpr,
    ORDER: tl.constexpr,
    SAFETY: tl.constexpr,
    MOST_GROWTH: tl.constexpr,
    MOST_SHRINKING: tl.constexpr,
    ROUNDING: tl.constexpr,
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
    KEEP: tl.constexpr,
):
    """ORDER is one more than the embedded solution's, ROUNDING that of float32."""
    member = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, TILE)
    real, entries = rows < samples, (samples * POINTS).to(tl.float64)
    begin, finish = tl.load(limits + 5 * member), tl.load(limits + 5 * member + 1)
    smallest = tl.load(limits + 5 * member + 2)
    rtol = tl.load(limits + 5 * member + 3).to(tl.float32)
    atol = tl.load(limits + 5 * member + 4).to(tl.float32)
    weights = _load_weights(lift, lift_bias, mix, mix_bias, lower, lower_bias, member, CHANNELS, WIDTH, TILE, PRECISION)
    # Rows beyond the last sample walk along with it, so that they are finite where it is.
    z = _load_state(starts + member * samples * POINTS, tl.minimum(rows, samples - 1), POINTS)

    span, direction = tl.abs(finish - begin), tl.where(finish > begin, _double(1.0), _double(-1.0))
    first = _evaluated(z, weights, POINTS, PRECISION)
    d0 = _norm(z, z, z, rtol, atol, real, entries, POINTS)
    d1 = _norm(first, z, z, rtol, atol, real, entries, POINTS)
    h0 = tl.minimum(_probing_step(d0, d1), span)
    probe = _plus(z, (direction * h0).to(tl.float32), first, POINTS)
    change = _plus(_evaluated(probe, weights, POINTS, PRECISION), -1.0, first, POINTS)
    d2 = _norm(change, z, z, rtol, atol, real, entries, POINTS) / h0
    h = tl.minimum(_proposed_step(h0, d1, d2, ORDER), span)
    ordinary = _is_finite(d0) & _is_finite(d1) & _is_finite(d2) & (ROUNDING * d0 <= 0.5)
    status = tl.where(ordinary, RUNNING, TROUBLE)

    rates = (first,)
    for _ in tl.static_range(1, STAGES):
        rates = rates + (_scaled(0.0, z, POINTS),)
    t, evaluations, taken, rejected = (
        begin,
        tl.full((), 2, tl.int32),
        tl.full((), 0, tl.int32),
        tl.full((), 0, tl.int32),
    )
    known = tl.full((), 1, tl.int32)  # whether the first rate is
    while status == RUNNING:
        left = tl.abs(finish - t)
        length = tl.where(h >= left * (1 - 1e-10), left, h)
        step = direction * length
        kept = inputs + (member * room + taken) * KEPT * samples * POINTS
        if KEEP:
            tl.store(sizes + member * room + taken, step.to(tl.float32))
            _store_state(kept, rows, z, samples, POINTS)
        for i in range(known, STAGES):
            x = _combined(z, step, rates, table, i, STAGES, POINTS)
            if KEEP:
                _store_state(kept + i * samples * POINTS, rows, x, tl.where(i < KEPT, samples, 0), POINTS)
            rate, new = _evaluated(x, weights, POINTS, PRECISION), ()
            for j in tl.static_range(STAGES):
                new = new + (_select(i == j, rate, rates[j], POINTS),)
            rates = new
        end = _combined(z, step, rates, table, STAGES, STAGES, POINTS)
        error = _combined(_scaled(0.0, z, POINTS), step, rates, table, STAGES + 1, STAGES, POINTS)
        ratio = _norm(error, z, end, rtol, atol, real, entries, POINTS)
        evaluations += STAGES - known

        accepted = ratio <= 1
        least = tl.where(ratio < 1, _double(1.0), _double(MOST_SHRINKING))
        factor = tl.minimum(tl.maximum(SAFETY / _root(ratio, ORDER), least), _double(MOST_GROWTH))
        h = tl.where(accepted, tl.maximum(length * factor, h), length * factor)
        t = tl.where(accepted, tl.where(length == left, finish, t + step), t)
        taken += accepted.to(tl.int32)
        rejected += 1 - accepted.to(tl.int32)
        z = _select(accepted, end, z, POINTS)
        if FSAL:
            rates = (_select(accepted, rates[STAGES - 1], rates[0], POINTS),) + rates[1:]
        else:
            known = 1 - accepted.to(tl.int32)

        there = t == finish
        status = tl.where(there, DONE, RUNNING)
        if KEEP:
            status = tl.where((taken == room) & (status == RUNNING), FULL, status)
        vanished, spent = (ratio > 1) & (h < smallest), (t != finish) & (taken + rejected >= budget)
        status = tl.where(_is_finite(ratio) & ~vanished & ~spent, status, TROUBLE)
    _store_state(ends + member * samples * POINTS, rows, z, samples, POINTS)
    members = tl.num_programs(0)
    tl.store(found + member, taken)
    tl.store(found + members + member, rejected)
    tl.store(found + 2 * members + member, evaluations)
    tl.store(found + 3 * members + member, status)


@triton.jit(do_not_specialize=("samples", "room"))
def adapt_backward(
    on_ends,  # [S, B, d]
    on_starts,  # [S, B, d]
    shares,  # [tiles, P S]
    inputs,  # [S, room, K, B, d]
    sizes,  # [S, room]
    found,
    table,
    lift,
    lift_bias,
    mix,
    mix_bias,
    lower,
    lower_bias,
    samples,
    room,
    STAGES: tl.constexpr,
    KEPT: tl.constexpr,
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """From the last accepted step's last stage to the first one's first; sizes are constants."""
    member = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    held = tl.minimum(rows, samples - 1)
    weights = _load_weights(lift, lift_bias, mix, mix_bias, lower, lower_bias, member, CHANNELS, WIDTH, TILE, PRECISION)
    on_z, taps_back = _begin_back(on_ends, weights, samples, POINTS, TILE)
    slices, totals = _begin_gradients(lift, lift_bias, member, CHANNELS, WIDTH, TILE)
    on_end, on_inputs = on_z, ()
    for _ in tl.static_range(KEPT):
        on_inputs = on_inputs + (_scaled(0.0, on_z, POINTS),)

    visited = inputs + member * room * KEPT * samples * POINTS
    stages = tl.load(found + member) * KEPT
    x = _load_state(visited + tl.maximum(stages - 1, 0) * samples * POINTS, held, POINTS)
    for n in range(stages):
        left = stages - 1 - n
        i = left % KEPT
        h = tl.load(sizes + member * room + left // KEPT).to(tl.float64)
        # What the next round starts from: memory is far away, so it is asked for early.
        before = _load_state(visited + tl.maximum(left - 1, 0) * samples * POINTS, held, POINTS)
        on_end = _select(i == KEPT - 1, on_z, on_end, POINTS)
        on_rate = _scaled((h * tl.load(table + STAGES * STAGES + i)).to(tl.float32), on_end, POINTS)
        for j in tl.static_range(1, KEPT):  # stages that come before this one weigh nothing
            on_rate = _plus(on_rate, (h * tl.load(table + j * STAGES + i)).to(tl.float32), on_inputs[j], POINTS)
        mixed = _mixed(x, weights, POINTS, PRECISION)
        on_input, totals = _pulled_back(
            x, mixed, on_rate, totals, weights, taps_back, slices, POINTS, WIDTH // 16, PRECISION
        )
        on_z = _plus(on_z, 1.0, on_input, POINTS)
        new = ()
        for j in tl.static_range(KEPT):
            new = new + (_select(i == j, on_input, on_inputs[j], POINTS),)
        on_inputs, x = new, before
    _end_back(on_starts, shares, on_z, totals, samples, POINTS, CHANNELS, WIDTH, TILE)
