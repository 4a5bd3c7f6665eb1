"""Triton kernels: a whole fixed-step solve of W3 relu(W2 relu(W1 z + b1) + b2) + b3, there and back.

A program walks one tile of samples of one member from start to end, its weights on chip all the way. A state has so few
points that each is a vector of its own: the outer layers are sums in float32, and only W2 is a matrix product.

Shapes: S members, B samples, d points (POINTS), H = hidden width (HIDDEN, padded to WIDTH), P parameters of a member,
room for N steps. In a program a *state* is a tuple of d vectors [TILE]; *layers* are W1, b1, W2, b2, W3, b3 with W1 and
W3 as tuples of d vectors [WIDTH], b3 of d numbers, and W2 in the parts that a product needs.
"""
# Triton's own language in Python's clothes: it has no types, and cannot unpack a tuple into another.
# mypy: ignore-errors
# ruff: noqa: RUF005

import triton
import triton.language as tl


@triton.jit
def _load_state(base, rows, POINTS: tl.constexpr):
    state = ()
    for c in tl.static_range(POINTS):
        state = state + (tl.load(base + rows * POINTS + c),)
    return state


@triton.jit
def _store_state(base, rows, state, samples, POINTS: tl.constexpr):
    for c in tl.static_range(POINTS):
        tl.store(base + rows * POINTS + c, state[c], mask=rows < samples)


@triton.jit
def _load_layers(
    w1,
    b1,
    w2,
    b2,
    w3,
    b3,
    member,
    POINTS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One member's layers; units beyond H are zero, and stay so."""
    unit = tl.arange(0, WIDTH)
    real = unit < HIDDEN
    lift, lower, shift = (), (), ()
    for c in tl.static_range(POINTS):
        lift = lift + (tl.load(w1 + (member * POINTS + c) * HIDDEN + unit, mask=real, other=0.0),)
        lower = lower + (tl.load(w3 + (member * HIDDEN + unit) * POINTS + c, mask=real, other=0.0),)
        shift = shift + (tl.load(b3 + member * POINTS + c),)
    square = (member * HIDDEN + unit[:, None]) * HIDDEN + unit[None, :]
    mix = tl.load(w2 + square, mask=real[:, None] & real[None, :], other=0.0)
    lift_bias = tl.load(b1 + member * HIDDEN + unit, mask=real, other=0.0)
    mix_bias = tl.load(b2 + member * HIDDEN + unit, mask=real, other=0.0)
    return lift, lift_bias, _parts(mix, PRECISION), mix_bias, lower, shift


@triton.jit
def _plus(state, scale, other, POINTS: tl.constexpr):
    """state + scale * other."""
    total = ()
    for c in tl.static_range(POINTS):
        total = total + (state[c] + scale * other[c],)
    return total


@triton.jit
def _scaled(scale, state, POINTS: tl.constexpr):
    scaled = ()
    for c in tl.static_range(POINTS):
        scaled = scaled + (scale * state[c],)
    return scaled


@triton.jit
def _outer(state, columns, POINTS: tl.constexpr):
    """A state times d rows of a matrix: [TILE, WIDTH]."""
    total = state[0][:, None] * columns[0][None, :]
    for c in tl.static_range(1, POINTS):
        total += state[c][:, None] * columns[c][None, :]
    return total


@triton.jit
def _inner(values, columns, POINTS: tl.constexpr):
    """[TILE, WIDTH] times d columns of a matrix: a state. All in one sum: each is a wait for all warps."""
    if POINTS == 1:
        state = (tl.sum(values * columns[0][None, :], axis=1),)
    elif POINTS == 2:
        state = tl.sum(tl.join(values * columns[0][None, :], values * columns[1][None, :]), axis=1).split()
    else:
        early = tl.join(values * columns[0][None, :], values * columns[1][None, :])
        late = tl.join(values * columns[2][None, :], values * columns[POINTS - 1][None, :])
        early, late = tl.sum(tl.join(early, late), axis=1).split()
        state = early.split() + late.split() if POINTS == 4 else early.split() + (late.split()[0],)
    return state


@triton.jit
def _add_outer(totals, state, values, POINTS: tl.constexpr):
    """d sums of [TILE, WIDTH], each with the values times one point of the state added; rows are summed at the end."""
    new = ()
    for c in tl.static_range(POINTS):
        new = new + (totals[c] + state[c][:, None] * values,)
    return new


@triton.jit
def _zeros(POINTS: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr):
    values = ()
    for _ in tl.static_range(POINTS):
        values = values + (tl.zeros((TILE, WIDTH), tl.float32),)
    return values


@triton.jit
def _parts(values, PRECISION: tl.constexpr):
    """What the tensor cores can hold, to the nearest, and the rest of it."""
    if PRECISION == "tf32x3":
        bits = values.to(tl.int32, bitcast=True)
        high = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        parts = (high, values - high)
    else:
        parts = (values, values)
    return parts


@triton.jit
def _product(left, right, start, PRECISION: tl.constexpr):
    """start + left @ right, both in parts. Two sums that do not wait for each other: small products, and large ones."""
    if PRECISION == "tf32x3":
        small = tl.dot(left[0], right[1], tl.dot(left[1], right[0], input_precision="tf32"), input_precision="tf32")
        product = tl.dot(left[0], right[0], start, input_precision="tf32") + small
    else:
        product = tl.dot(left[0], right[0], start, input_precision=PRECISION)
    return product


@triton.jit
def _add_product(total, left, right, PRECISION: tl.constexpr):
    """The same in one sum, for a matrix so large that registers are dearer than waiting."""
    if PRECISION == "tf32x3":
        total = tl.dot(left[1], right[0], total, input_precision="tf32")
        total = tl.dot(left[0], right[1], total, input_precision="tf32")
        total = tl.dot(left[0], right[0], total, input_precision="tf32")
    else:
        total = tl.dot(left[0], right[0], total, input_precision=PRECISION)
    return total


@triton.jit
def _first(x, layers, POINTS: tl.constexpr):
    """The first hidden layer: so cheap that it is rather computed again than kept."""
    total = layers[1][None, :]
    for c in tl.static_range(POINTS):
        total = total + x[c][:, None] * layers[0][c][None, :]
    return tl.maximum(total, 0.0)


@triton.jit
def _second(x, layers, POINTS: tl.constexpr, PRECISION: tl.constexpr):
    """The second hidden layer."""
    first = _first(x, layers, POINTS)
    bias = tl.broadcast_to(layers[3][None, :], first.shape)
    return tl.maximum(_product(_parts(first, PRECISION), layers[2], bias, PRECISION), 0.0)


@triton.jit
def _rate(second, layers, POINTS: tl.constexpr):
    product = _inner(second, layers[4], POINTS)
    return _plus(product, 1.0, layers[5], POINTS)


@triton.jit
def _combine(z, h, rates, ROWS: tl.constexpr, ROW: tl.constexpr, POINTS: tl.constexpr):
    """z + h sum_i w_i k_i with a row of the tableau, which is as long as there are rates before it."""
    for i in tl.static_range(ROW):
        if ROWS[ROW][i] != 0.0:
            z = _plus(z, h * ROWS[ROW][i], rates[i], POINTS)
    return z


@triton.jit(do_not_specialize=("samples", "room"))
def walk_forward(
    starts,  # [S, B, d]
    ends,  # [S, B, d]
    states,  # [S, room, B, d], before each step, where KEEP
    sizes,  # [S, room]
    counts,  # [S]
    w1,
    b1,
    w2,
    b2,
    w3,
    b3,
    samples,
    room,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
    POINTS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    member = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    layers = _load_layers(w1, b1, w2, b2, w3, b3, member, POINTS, HIDDEN, WIDTH, PRECISION)
    # Rows beyond the last sample walk along with it, so that they are finite where it is.
    z = _load_state(starts + member * samples * POINTS, tl.minimum(rows, samples - 1), POINTS)
    for n in range(tl.load(counts + member)):
        if KEEP:
            _store_state(states + (member * room + n) * samples * POINTS, rows, z, samples, POINTS)
        h = tl.load(sizes + member * room + n)
        rates = ()
        for i in tl.static_range(STAGES):
            x = _combine(z, h, rates, ROWS, i, POINTS)
            rates = rates + (_rate(_second(x, layers, POINTS, PRECISION), layers, POINTS),)
        z = _combine(z, h, rates, ROWS, STAGES, POINTS)
    _store_state(ends + member * samples * POINTS, rows, z, samples, POINTS)


@triton.jit
def _store_gradients(base, gradients, POINTS: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    """A program's share [P]: W1, b1, W2, b2, W3, b3 one after the other, summed over its samples."""
    on_lift, on_lift_bias, on_mix, on_mix_bias, on_lower, on_shift = gradients
    unit = tl.arange(0, WIDTH)
    real = unit < HIDDEN
    for c in tl.static_range(POINTS):
        tl.store(base + c * HIDDEN + unit, tl.sum(on_lift[c], axis=0), mask=real)
    base += POINTS * HIDDEN
    tl.store(base + unit, tl.sum(on_lift_bias, axis=0), mask=real)
    base += HIDDEN
    tl.store(base + unit[:, None] * HIDDEN + unit[None, :], on_mix, mask=real[:, None] & real[None, :])
    base += HIDDEN * HIDDEN
    tl.store(base + unit, tl.sum(on_mix_bias, axis=0), mask=real)
    base += HIDDEN
    for c in tl.static_range(POINTS):
        tl.store(base + unit * POINTS + c, tl.sum(on_lower[c], axis=0), mask=real)
    base += HIDDEN * POINTS
    for c in tl.static_range(POINTS):
        tl.store(base + c, tl.sum(on_shift[c], axis=0))


@triton.jit(do_not_specialize=("samples", "room"))
def walk_backward(
    on_ends,  # [S, B, d]
    on_starts,  # [S, B, d]
    shares,  # [S, tiles, P]
    states,  # [S, room, B, d]
    sizes,  # [S, room]
    counts,  # [S]
    w1,
    b1,
    w2,
    b2,
    w3,
    b3,
    samples,
    room,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
    POINTS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """From the end to the start: each step's stages are recomputed from the state before it."""
    member = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    held = tl.minimum(rows, samples - 1)
    layers = _load_layers(w1, b1, w2, b2, w3, b3, member, POINTS, HIDDEN, WIDTH, PRECISION)
    mix_back = (tl.trans(layers[2][0]), tl.trans(layers[2][1]))
    on_z = _load_state(on_ends + member * samples * POINTS, held, POINTS)
    on_z = _scaled(tl.where(rows < samples, 1.0, 0.0), on_z, POINTS)
    on_shift = _scaled(0.0, on_z, POINTS)
    on_lift, on_lower = _zeros(POINTS, TILE, WIDTH), _zeros(POINTS, TILE, WIDTH)
    on_lift_bias, on_mix_bias = tl.zeros((TILE, WIDTH), tl.float32), tl.zeros((TILE, WIDTH), tl.float32)
    on_mix = tl.zeros((WIDTH, WIDTH), tl.float32)

    steps = tl.load(counts + member)
    # Not a constant, so that the compiler keeps the two sums of a product apart.
    zero = tl.zeros((TILE, WIDTH), tl.float32) + tl.minimum(steps, 0).to(tl.float32)
    visited = states + member * room * samples * POINTS
    before = _load_state(visited + tl.maximum(steps - 1, 0) * samples * POINTS, held, POINTS)
    for n in range(steps):
        left = steps - 1 - n
        z, h = before, tl.load(sizes + member * room + left)
        # What the next round starts from: memory is far away, so it is asked for early.
        before = _load_state(visited + tl.maximum(left - 1, 0) * samples * POINTS, held, POINTS)
        inputs, seconds, rates = (), (), ()
        for i in tl.static_range(STAGES):
            x = _combine(z, h, rates, ROWS, i, POINTS)
            inputs, seconds = inputs + (x,), seconds + (_second(x, layers, POINTS, PRECISION),)
            if i + 1 < STAGES:
                rates = rates + (_rate(seconds[i], layers, POINTS),)
        on_end = on_z
        on_inputs = ()  # from the last stage on
        for i in tl.static_range(STAGES - 1, -1, -1):
            on_rate = _scaled(h * ROWS[STAGES][i], on_end, POINTS)
            for j in tl.static_range(i + 1, STAGES):
                if ROWS[j][i] != 0.0:
                    on_rate = _plus(on_rate, h * ROWS[j][i], on_inputs[STAGES - 1 - j], POINTS)
            on_second = tl.where(seconds[i] > 0.0, _outer(on_rate, layers[4], POINTS), 0.0)
            on_second_parts = _parts(on_second, PRECISION)
            on_first = _product(on_second_parts, mix_back, zero, PRECISION)
            first = _first(inputs[i], layers, POINTS)
            on_first = tl.where(first > 0.0, on_first, 0.0)
            on_input = _inner(on_first, layers[0], POINTS)
            on_inputs = on_inputs + (on_input,)
            on_z = _plus(on_z, 1.0, on_input, POINTS)
            on_lift = _add_outer(on_lift, inputs[i], on_first, POINTS)
            on_lift_bias += on_first
            on_mix = _add_product(on_mix, _parts(tl.trans(first), PRECISION), on_second_parts, PRECISION)
            on_mix_bias += on_second
            on_lower = _add_outer(on_lower, on_rate, seconds[i], POINTS)
            on_shift = _plus(on_shift, 1.0, on_rate, POINTS)
    _store_state(on_starts + member * samples * POINTS, rows, on_z, samples, POINTS)
    share = shares + (member * tl.num_programs(1) + tl.program_id(1)) * ((2 * POINTS + HIDDEN + 2) * HIDDEN + POINTS)
    gradients = (on_lift, on_lift_bias, on_mix, on_mix_bias, on_lower, on_shift)
    _store_gradients(share, gradients, POINTS, HIDDEN, WIDTH)
