"""Triton kernels: a whole fixed-step solve of the sphere networks' field, there and back.

A program walks one tile of samples of one member from start to end, its weights on chip all the way. Each point's state
and hidden layers are tensors of their own: lifting and lowering are sums in float32, and the mixing convolution is
three small matrices, its *taps*, which all points share.

Shapes: S members, B samples, d points (POINTS), C channels (CHANNELS, padded to WIDTH), P parameters of a member, room
for N steps. In a program a *state* is a tuple of d vectors [TILE], and a *layer* one of d matrices [TILE, WIDTH].
*Weights* are lift [WIDTH], its bias [WIDTH], three taps [WIDTH, WIDTH] in parts, their bias [TILE, WIDTH], lower
[WIDTH], and its bias, a number.
"""
# Triton's own language in Python's clothes: it has no types, and cannot unpack a tuple into another.
# mypy: ignore-errors
# ruff: noqa: RUF005

import triton
import triton.language as tl


@triton.jit
def _load_state(base, rows, POINTS: tl.constexpr):
    state = ()
    for p in tl.static_range(POINTS):
        state = state + (tl.load(base + rows * POINTS + p),)
    return state


@triton.jit
def _store_state(base, rows, state, samples, POINTS: tl.constexpr):
    for p in tl.static_range(POINTS):
        tl.store(base + rows * POINTS + p, state[p], mask=rows < samples)


@triton.jit
def _plus(state, scale, other, POINTS: tl.constexpr):
    """state + scale * other."""
    total = ()
    for p in tl.static_range(POINTS):
        total = total + (state[p] + scale * other[p],)
    return total


@triton.jit
def _scaled(scale, state, POINTS: tl.constexpr):
    scaled = ()
    for p in tl.static_range(POINTS):
        scaled = scaled + (scale * state[p],)
    return scaled


@triton.jit
def _combine(z, h, rates, ROWS: tl.constexpr, ROW: tl.constexpr, POINTS: tl.constexpr):
    """z + h sum_i w_i k_i with a row of the tableau, which is as long as there are rates before it."""
    for i in tl.static_range(ROW):
        if ROWS[ROW][i] != 0.0:
            z = _plus(z, h * ROWS[ROW][i], rates[i], POINTS)
    return z


@triton.jit
def _chosen(parts, i, COUNT: tl.constexpr, POINTS: tl.constexpr):
    """One of some states, or of some layers, by a number that is known only when it runs."""
    found = parts[0]
    for s in tl.static_range(1, COUNT):
        chosen = ()
        for p in tl.static_range(POINTS):
            chosen = chosen + (tl.where(i == s, parts[s][p], found[p]),)
        found = chosen
    return found


@triton.jit
def _spread(on_rates, i, h, on_input, ROWS: tl.constexpr, STAGES: tl.constexpr, POINTS: tl.constexpr):
    """The cotangents of all rates, with the shares that come by way of stage i, known only when it runs, from the rates
    before it."""
    spread = ()
    for j in tl.static_range(STAGES):
        weight = tl.zeros((), tl.float32)
        for s in tl.static_range(j + 1, STAGES):
            weight = tl.where(i == s, ROWS[s][j], weight)
        spread = spread + (_plus(on_rates[j], h * weight, on_input, POINTS),)
    return spread


@triton.jit
def _load_lift(lift, lift_bias, member, channel, CHANNELS: tl.constexpr):
    """The first layer's weights and biases for some channels; those beyond C are zero, and stay so."""
    place, real = member * CHANNELS + channel, channel < CHANNELS
    return tl.load(lift + place, mask=real, other=0.0), tl.load(lift_bias + place, mask=real, other=0.0)


@triton.jit
def _load_weights(
    lift,  # [S, C]
    lift_bias,  # [S, C]
    mix,  # [S, C out, C in, 3]
    mix_bias,  # [S, C]
    lower,  # [S, C]
    lower_bias,  # [S]
    member,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """All of one member's."""
    channel = tl.arange(0, WIDTH)
    real = channel < CHANNELS
    lines = member * CHANNELS + channel
    taps = ()
    for k in tl.static_range(3):
        place = mix + (lines[None, :] * CHANNELS + channel[:, None]) * 3 + k  # [in, out]
        taps = taps + (_parts(tl.load(place, mask=real[:, None] & real[None, :], other=0.0), PRECISION),)
    bias = tl.broadcast_to(tl.load(mix_bias + lines, mask=real, other=0.0)[None, :], (TILE, WIDTH))
    column, shift = tl.load(lower + lines, mask=real, other=0.0), tl.load(lower_bias + member)
    return _load_lift(lift, lift_bias, member, channel, CHANNELS) + (taps, bias, column, shift)


@triton.jit
def _parts(values, PRECISION: tl.constexpr):
    """What the tensor cores can hold of float32, to the nearest, and the rest."""
    if PRECISION == "tf32x3":
        bits = values.to(tl.int32, bitcast=True)
        high = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        parts = (high, values - high)
    else:
        parts = (values, values)
    return parts


@triton.jit
def _layer_parts(layer, POINTS: tl.constexpr, PRECISION: tl.constexpr):
    parts = ()
    for p in tl.static_range(POINTS):
        parts = parts + (_parts(layer[p], PRECISION),)
    return parts


@triton.jit
def _transposed(parts):
    return tl.trans(parts[0]), tl.trans(parts[1])


@triton.jit
def _convolve(layer, taps, start, POINTS: tl.constexpr, PRECISION: tl.constexpr):
    """start + sum_k layer_{p + k - 1} M_k at every point p, from parts. In float32 the small products have a sum of
    their own, which does not wait for that of the large ones."""
    convolved = ()
    for p in tl.static_range(POINTS):
        total, small = start, tl.zeros_like(start)
        for k in tl.static_range(3):
            if p + k >= 1 and p + k <= POINTS:
                left, right = layer[p + k - 1], taps[k]
                if PRECISION == "tf32x3":
                    small = tl.dot(left[1], right[0], small, input_precision="tf32")
                    small = tl.dot(left[0], right[1], small, input_precision="tf32")
                    total = tl.dot(left[0], right[0], total, input_precision="tf32")
                else:
                    total = tl.dot(left[0], right[0], total, input_precision=PRECISION)
        convolved = convolved + (total + small if PRECISION == "tf32x3" else total,)
    return convolved


@triton.jit
def _add_products(totals, x, slices, after, POINTS: tl.constexpr, SLICES: tl.constexpr, PRECISION: tl.constexpr):
    """The taps' gradients: totals_k + sum_p lifted_{p + k - 1}^T after_p, by slices of 16 channels of the lifted layer.
    Triton shares a matrix out between warps by rows unless it has more columns, and by rows all others would follow."""
    new = ()
    for s in tl.static_range(SLICES):
        lifted = _layer_parts(_lifted(x, slices[s], POINTS), POINTS, PRECISION)
        for k in tl.static_range(3):
            total = totals[3 * s + k]
            for p in tl.static_range(POINTS):
                if p + k >= 1 and p + k <= POINTS:
                    left, right = _transposed(lifted[p + k - 1]), after[p]
                    if PRECISION == "tf32x3":
                        total = tl.dot(left[1], right[0], total, input_precision="tf32")
                        total = tl.dot(left[0], right[1], total, input_precision="tf32")
                        total = tl.dot(left[0], right[0], total, input_precision="tf32")
                    else:
                        total = tl.dot(left[0], right[0], total, input_precision=PRECISION)
            new = new + (total,)
    return new


@triton.jit
def _lowered(layer, column, POINTS: tl.constexpr):
    """Every point's channels times a column, summed: a state. Up to four points in one sum: each is a wait for all."""
    state = ()
    for p in tl.static_range(0, POINTS, 4):
        one = layer[p] * column[None, :]
        if POINTS - p == 1:
            state = state + (tl.sum(one, axis=1),)
        else:
            pair = tl.join(one, layer[p + 1] * column[None, :])
            if POINTS - p == 2:
                state = state + tl.sum(pair, axis=1).split()
            else:
                last = layer[p + 3] * column[None, :] if POINTS - p > 3 else one
                early, late = tl.sum(tl.join(pair, tl.join(layer[p + 2] * column[None, :], last)), axis=1).split()
                third, fourth = late.split()
                state = state + early.split() + ((third, fourth) if POINTS - p > 3 else (third,))
    return state


@triton.jit
def _relu(x):
    """As PyTorch's: what is not a number stays so."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _lifted(x, weights, POINTS: tl.constexpr):
    """The first hidden layer: so cheap that it is rather computed again than kept."""
    layer = ()
    for p in tl.static_range(POINTS):
        layer = layer + (_relu(x[p][:, None] * weights[0][None, :] + weights[1][None, :]),)
    return layer


@triton.jit
def _mixed(x, weights, POINTS: tl.constexpr, PRECISION: tl.constexpr):
    """The second hidden layer."""
    parts = _layer_parts(_lifted(x, weights, POINTS), POINTS, PRECISION)
    sums = _convolve(parts, weights[2], weights[3], POINTS, PRECISION)
    layer = ()
    for p in tl.static_range(POINTS):
        layer = layer + (_relu(sums[p]),)
    return layer


@triton.jit
def _rate(mixed, weights, POINTS: tl.constexpr):
    sums = _lowered(mixed, weights[4], POINTS)
    rate = ()
    for p in tl.static_range(POINTS):
        rate = rate + (sums[p] + weights[5],)
    return rate


@triton.jit(do_not_specialize=("samples", "room"))
def walk_forward(
    starts,  # [S, B, d]
    ends,  # [S, B, d]
    states,  # [S, room, B, d]: before each step, where KEEP
    sizes,  # [S, room]
    counts,  # [S]
    lift,
    lift_bias,
    mix,
    mix_bias,
    lower,
    lower_bias,
    samples,
    room,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
    KEEP: tl.constexpr,
):
    """ROWS are those of the tableau, the weights b last."""
    member = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    weights = _load_weights(lift, lift_bias, mix, mix_bias, lower, lower_bias, member, CHANNELS, WIDTH, TILE, PRECISION)
    # Rows beyond the last sample walk along with it, so that they are finite where it is.
    z = _load_state(starts + member * samples * POINTS, tl.minimum(rows, samples - 1), POINTS)
    for n in range(tl.load(counts + member)):
        if KEEP:
            _store_state(states + (member * room + n) * samples * POINTS, rows, z, samples, POINTS)
        h = tl.load(sizes + member * room + n)
        rates = ()
        for i in tl.static_range(STAGES):
            x = _combine(z, h, rates, ROWS, i, POINTS)
            rates = rates + (_rate(_mixed(x, weights, POINTS, PRECISION), weights, POINTS),)
        z = _combine(z, h, rates, ROWS, STAGES, POINTS)
    _store_state(ends + member * samples * POINTS, rows, z, samples, POINTS)


@triton.jit
def _begin_gradients(lift, lift_bias, member, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """The first layer's weights by slices of 16 channels, and totals of zero: of lift, its bias, the taps, their bias,
    lower, and its bias."""
    nothing = tl.zeros((TILE, WIDTH), tl.float32)
    slices, on_taps = (), ()
    for s in tl.static_range(WIDTH // 16):
        slices = slices + (_load_lift(lift, lift_bias, member, 16 * s + tl.arange(0, 16), CHANNELS),)
        for _ in tl.static_range(3):
            on_taps = on_taps + (tl.zeros((16, WIDTH), tl.float32),)
    return slices, (nothing, nothing, on_taps, nothing, nothing, tl.zeros((TILE,), tl.float32))


@triton.jit
def _pulled_back(
    x,
    mixed,
    on_rate,
    totals,
    weights,
    taps_back,
    slices,
    POINTS: tl.constexpr,
    SLICES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The cotangent of a rate taken back to its state x; with its share of the gradients added to the totals."""
    on_lift, on_lift_bias, on_taps, on_mix_bias, on_lower, on_lower_bias = totals
    on_mixed = ()
    for p in tl.static_range(POINTS):
        spread = on_rate[p][:, None] * weights[4][None, :]
        on_mixed = on_mixed + (tl.where(mixed[p] > 0.0, spread, 0.0),)
        on_mix_bias += on_mixed[p]
        on_lower += on_rate[p][:, None] * mixed[p]
        on_lower_bias += on_rate[p]
    on_mixed_parts = _layer_parts(on_mixed, POINTS, PRECISION)
    sums = _convolve(on_mixed_parts, taps_back, tl.zeros_like(on_lift), POINTS, PRECISION)
    lifted = _lifted(x, weights, POINTS)
    on_lifted = ()
    for p in tl.static_range(POINTS):
        on_lifted = on_lifted + (tl.where(lifted[p] > 0.0, sums[p], 0.0),)
        on_lift_bias += on_lifted[p]
        on_lift += x[p][:, None] * on_lifted[p]
    on_input = _lowered(on_lifted, weights[0], POINTS)
    on_taps = _add_products(on_taps, x, slices, on_mixed_parts, POINTS, SLICES, PRECISION)
    return on_input, (on_lift, on_lift_bias, on_taps, on_mix_bias, on_lower, on_lower_bias)


@triton.jit
def _store_gradients(base, gradients, member, members, CHANNELS: tl.constexpr, WIDTH: tl.constexpr):
    """A program's part of its tile's share [P S]: each of the weights for all members, one after the other."""
    on_lift, on_lift_bias, on_taps, on_mix_bias, on_lower, on_lower_bias = gradients
    channel = tl.arange(0, WIDTH)
    real = channel < CHANNELS
    lines = base + member * CHANNELS + channel
    tl.store(lines, tl.sum(on_lift, axis=0), mask=real)
    tl.store(lines + members * CHANNELS, tl.sum(on_lift_bias, axis=0), mask=real)
    taps = base + (2 * members + member * CHANNELS * 3) * CHANNELS
    for s in tl.static_range(WIDTH // 16):
        into = 16 * s + tl.arange(0, 16)[:, None]
        for k in tl.static_range(3):
            place = taps + (channel[None, :] * CHANNELS + into) * 3 + k
            tl.store(place, on_taps[3 * s + k], mask=(into < CHANNELS) & real[None, :])
    lines += members * (2 + 3 * CHANNELS) * CHANNELS
    tl.store(lines, tl.sum(on_mix_bias, axis=0), mask=real)
    tl.store(lines + members * CHANNELS, tl.sum(on_lower, axis=0), mask=real)
    tl.store(base + members * (4 + 3 * CHANNELS) * CHANNELS + member, tl.sum(on_lower_bias, axis=0))


@triton.jit
def _begin_back(on_ends, weights, samples, POINTS: tl.constexpr, TILE: tl.constexpr):
    """The cotangent of a tile's end, zero beyond the last sample, and the taps for the way back."""
    member, rows = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    on_z = _load_state(on_ends + member * samples * POINTS, tl.minimum(rows, samples - 1), POINTS)
    on_z = _scaled(tl.where(rows < samples, 1.0, 0.0), on_z, POINTS)
    return on_z, (_transposed(weights[2][2]), _transposed(weights[2][1]), _transposed(weights[2][0]))


@triton.jit
def _end_back(
    on_starts,
    shares,
    on_z,
    totals,
    samples,
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Store the cotangent of a tile's start, and its share of the gradients."""
    member, rows = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    _store_state(on_starts + member * samples * POINTS, rows, on_z, samples, POINTS)
    members = tl.num_programs(0)
    share = shares + tl.program_id(1).to(tl.int64) * members * (3 * CHANNELS * CHANNELS + 4 * CHANNELS + 1)
    _store_gradients(share, totals, member, members, CHANNELS, WIDTH)


@triton.jit(do_not_specialize=("samples", "room"))
def walk_backward(
    on_ends,  # [S, B, d]
    on_starts,  # [S, B, d]
    shares,  # [tiles, P S]
    states,  # [S, room, B, d]
    sizes,  # [S, room]
    counts,  # [S]
    lift,
    lift_bias,
    mix,
    mix_bias,
    lower,
    lower_bias,
    samples,
    room,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """From the end to the start: each step's stages are computed again from the state before it."""
    member = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    held = tl.minimum(rows, samples - 1)
    weights = _load_weights(lift, lift_bias, mix, mix_bias, lower, lower_bias, member, CHANNELS, WIDTH, TILE, PRECISION)
    on_z, taps_back = _begin_back(on_ends, weights, samples, POINTS, TILE)
    slices, totals = _begin_gradients(lift, lift_bias, member, CHANNELS, WIDTH, TILE)

    steps = tl.load(counts + member)
    visited = states + member * room * samples * POINTS
    before = _load_state(visited + tl.maximum(steps - 1, 0) * samples * POINTS, held, POINTS)
    for n in range(steps):
        left = steps - 1 - n
        z, h = before, tl.load(sizes + member * room + left)
        # What the next round starts from: memory is far away, so it is asked for early.
        before = _load_state(visited + tl.maximum(left - 1, 0) * samples * POINTS, held, POINTS)
        inputs, mixed, rates = (), (), ()
        for i in tl.static_range(STAGES):
            x = _combine(z, h, rates, ROWS, i, POINTS)
            inputs, mixed = inputs + (x,), mixed + (_mixed(x, weights, POINTS, PRECISION),)
            if i + 1 < STAGES:
                rates = rates + (_rate(mixed[i], weights, POINTS),)
        if STAGES > 2:  # one after the other in a loop: unrolled, this takes ptxas half a minute
            on_rates = ()
            for i in tl.static_range(STAGES):
                on_rates = on_rates + (_scaled(h * ROWS[STAGES][i], on_z, POINTS),)
            for later in range(STAGES):
                stage = tl.full((), STAGES - 1, tl.int32) - later
                on_input, totals = _pulled_back(
                    _chosen(inputs, stage, STAGES, POINTS),
                    _chosen(mixed, stage, STAGES, POINTS),
                    _chosen(on_rates, stage, STAGES, POINTS),
                    *(totals, weights, taps_back, slices, POINTS, WIDTH // 16, PRECISION),
                )
                on_rates = _spread(on_rates, stage, h, on_input, ROWS, STAGES, POINTS)
                on_z = _plus(on_z, 1.0, on_input, POINTS)
        else:
            on_end = on_z
            on_inputs = ()  # from the last stage on
            for i in tl.static_range(STAGES - 1, -1, -1):
                on_rate = _scaled(h * ROWS[STAGES][i], on_end, POINTS)
                for j in tl.static_range(i + 1, STAGES):
                    if ROWS[j][i] != 0.0:
                        on_rate = _plus(on_rate, h * ROWS[j][i], on_inputs[STAGES - 1 - j], POINTS)
                on_input, totals = _pulled_back(
                    inputs[i], mixed[i], on_rate, totals, weights, taps_back, slices, POINTS, WIDTH // 16, PRECISION
                )
                on_inputs = on_inputs + (on_input,)
                on_z = _plus(on_z, 1.0, on_input, POINTS)
    _end_back(on_starts, shares, on_z, totals, samples, POINTS, CHANNELS, WIDTH, TILE)
