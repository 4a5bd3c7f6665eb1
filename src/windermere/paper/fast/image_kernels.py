"""Triton kernels: one evaluation of the image networks' field, there and back, its hidden layers never in memory.

A program owns a tile of pixels, whichever images they lie in. The big product of a 3x3 convolution is nine, its *taps*:
that of the hidden layer at the shifted pixels, [TILE, WIDTH], and a matrix [WIDTH, WIDTH]. What it takes at the
shifted pixels is made there and then from a *patch*, for which a product of depth 16 is enough. A patch holds a
pixel's values v of a state or of a cotangent, c <= 4 of them, in 16 numbers:

    high(v), low(v), high(v), 1, 1, 0 ...        and its weights      high(w), high(w), low(w), high(b), low(b), 0 ...

with high the nearest bfloat16 and low the rest, so that the product is w v + b almost in float32. Patches lie in images
with a border of zeros: there the bias goes out with the ones, and the hidden layer is zero as the padding wants it.

Shapes: B images of HEIGHT x LENGTH pixels, ROWS in all; c channels (CHANNELS), w hidden ones, padded to WIDTH. States
and cotangents are float32 [B, c, HEIGHT, LENGTH]; patches [B, HEIGHT + 2, LENGTH + 2, 16]; *bits* [ROWS, 4] say where
the second hidden layer is positive: column 64 g + 8 j + 2 t + e in word t, bit 7 - j of byte 2 g + e (between them four
threads have a row of a product, and t is theirs); *levels* [ROWS, WIDTH] are its values, rounded up to multiples of
the pixel's largest, *scales* [ROWS], over TOP. COLUMNS are pairs (start, size) that share WIDTH out in powers of two:
there is an accumulator for each. Products are bfloat16 where patches are, and float32 where they are that.
"""
# Triton's own language in Python's clothes: it has no types, and cannot unpack a tuple into another.
# mypy: ignore-errors
# ruff: noqa: RUF005

import triton
import triton.language as tl

from windermere.paper.fast.kernels import _relu

PATCH: tl.constexpr = tl.constexpr(16)
"""The least depth of a product on tensor cores."""
TOP: tl.constexpr = tl.constexpr(254.5)
"""Units in a pixel's largest value: its level, 255, stands for the middle of what is rounded up to it."""


@triton.jit
def _patch_row(pixel, HEIGHT: tl.constexpr, LENGTH: tl.constexpr):
    """Where a pixel's patch lies."""
    image, inside = pixel // (HEIGHT * LENGTH), pixel % (HEIGHT * LENGTH)
    return (image * (HEIGHT + 2) + inside // LENGTH + 1) * (LENGTH + 2) + inside % LENGTH + 1


@triton.jit
def _place(pixel, channel, CHANNELS: tl.constexpr, AREA: tl.constexpr):
    """Where a pixel's value lies in a state."""
    return (pixel // AREA * CHANNELS + channel) * AREA + pixel % AREA


@triton.jit
def _load_patch(patches, row):
    return tl.load(patches + row[:, None] * PATCH + tl.arange(0, PATCH)[None, :])


@triton.jit
def _load_matrix(matrix, first, WIDTH: tl.constexpr, LINES: tl.constexpr, START: tl.constexpr, SIZE: tl.constexpr):
    """LINES lines from the first, and the SIZE columns from START."""
    line, column = first + tl.arange(0, LINES), START + tl.arange(0, SIZE)
    return tl.load(matrix + line[:, None] * WIDTH + column[None, :])


@triton.jit
def _positive(values, like, ASSEMBLY: tl.constexpr):
    """Zero instead of what is negative, rounded to a dtype; for a pair of bfloat16, PTX has one instruction."""
    if ASSEMBLY:
        positive = tl.inline_asm_elementwise(
            "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,r,r", [values], dtype=like.dtype, is_pure=True, pack=2
        )
    else:
        positive = _relu(values).to(like.dtype)
    return positive


@triton.jit
def _load_words(bits, pixel):
    return tl.load(bits + pixel[:, None] * 4 + tl.arange(0, 4)[None, :])


@triton.jit
def _place_of_bit(START: tl.constexpr, SIZE: tl.constexpr):
    """For each of some columns: the byte of its word that holds its bit, and how far to shift the bit left to make it
    the byte's highest."""
    column = (START + tl.arange(0, SIZE))[None, :]
    return column // 64 * 2 + column % 2, column % 64 // 8


@triton.jit
def _masked(values, words, like, START: tl.constexpr, SIZE: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Values [TILE, SIZE] where the hidden layer was positive, else zero, rounded to a dtype. In PTX a pair of bfloat16
    takes three instructions: what makes the mask of a byte's first bit is `prmt`."""
    byte, left = _place_of_bit(START, SIZE)
    spread = tl.broadcast_to(words[:, None, :, None], (words.shape[0], SIZE // 8, 4, 2)).reshape(words.shape[0], SIZE)
    if ASSEMBLY:
        masked = tl.inline_asm_elementwise(
            """{
            .reg .b32 one, other, chosen, mask;
            shl.b32 one, $2, $4;
            shl.b32 other, $3, $5;
            mad.lo.u32 chosen, $7, 0x1100, 0xcc88;
            mad.lo.u32 chosen, $6, 0x11, chosen;
            prmt.b32 mask, one, other, chosen;
            and.b32 $0, $1, mask;
            }""",
            "=r,r,r,r,r,r,r,r",
            [values.to(like.dtype), spread, left, byte],
            dtype=like.dtype,
            is_pure=True,
            pack=2,
        )
    else:
        masked = (values * (spread << left >> (8 * byte + 7) & 1).to(tl.float32)).to(like.dtype)
    return masked


@triton.jit
def _words_of(hidden, START: tl.constexpr, SIZE: tl.constexpr):
    byte, left = _place_of_bit(START, SIZE)
    flags = (hidden > 0.0).to(tl.int32) << (8 * byte + 7 - left)
    return tl.sum(tl.sum(flags.reshape(hidden.shape[0], SIZE // 8, 4, 2), axis=3), axis=1)


@triton.jit
def _store_words(bits, words, pixel, rows):
    tl.store(bits + pixel[:, None] * 4 + tl.arange(0, 4)[None, :], words, mask=(pixel < rows)[:, None])


@triton.jit
def _store_levels(levels, hidden, unit, pixel, rows, WIDTH: tl.constexpr, START: tl.constexpr, SIZE: tl.constexpr):
    """Multiples of a unit, [TILE], rounded up: what is positive is at least one."""
    level = tl.minimum(tl.ceil(hidden * tl.where(unit > 0.0, 1.0 / unit, 0.0)[:, None]), 255.0).to(tl.uint8)
    place = pixel[:, None] * WIDTH + START + tl.arange(0, SIZE)[None, :]
    tl.store(levels + place, level, mask=(pixel < rows)[:, None])


@triton.jit
def _over_pixels(layer, factors, total):
    """total + sum_p layer(p)^T factors(p), [columns, 16], from [TILE, columns] in float32 and [TILE, 16]: by products,
    since sums over a tile's pixels are slow."""
    high = layer.to(factors.dtype)
    low = (layer - high.to(tl.float32)).to(factors.dtype)
    total = tl.dot(tl.trans(low), factors, total, input_precision="ieee")
    return tl.dot(tl.trans(high), factors, total, input_precision="ieee")


@triton.jit
def _add(place, values):
    """Each place is one program's own, so the order of summation is always the same."""
    tl.store(place, tl.load(place) + values)


@triton.jit
def _shift(tap, LENGTH: tl.constexpr):
    """How many rows of patches lie between a pixel and the one that a tap looks at, in images of this length."""
    return (tap // 3 - 1) * LENGTH + tap % 3 - 1


@triton.jit(do_not_specialize=("step", "rows"))
def combine(
    base,  # a state
    terms,  # [terms, a state]
    sizes,  # [N]
    step,
    out,  # a state; may be the base
    patches,
    other,  # a state
    other_patches,
    rows,
    WEIGHTS: tl.constexpr,
    TERMS: tl.constexpr,
    FROM_BASE: tl.constexpr,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    LENGTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """base + h sum_i w_i terms_i, or without the base: as a state, and as patches. A second row of programs makes
    patches of another state."""
    pixel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    entry = tl.arange(0, PATCH)[None, :]
    place = _place(pixel[:, None], entry % CHANNELS, CHANNELS, HEIGHT * LENGTH)
    real = (pixel < rows)[:, None]
    used = real & (entry < 3 * CHANNELS)
    if tl.program_id(1) == 0:
        value = tl.zeros((TILE, PATCH), tl.float32)
        if FROM_BASE:
            value = tl.load(base + place, mask=used, other=0.0)
        h = tl.load(sizes + step)
        for i in tl.static_range(TERMS):
            if WEIGHTS[i] != 0.0:
                value += h * WEIGHTS[i] * tl.load(terms + i * rows * CHANNELS + place, mask=used, other=0.0)
        tl.store(out + place, value, mask=real & (entry < CHANNELS))
        _store_patches(patches, value, pixel, rows, CHANNELS, HEIGHT, LENGTH)
    else:
        value = tl.load(other + place, mask=used, other=0.0)
        _store_patches(other_patches, value, pixel, rows, CHANNELS, HEIGHT, LENGTH)


@triton.jit
def _store_patches(patches, value, pixel, rows, CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, LENGTH: tl.constexpr):
    """Stores patches. `value` holds a pixel's value in every place of its patch that is made from a value."""
    entry = tl.arange(0, PATCH)[None, :]
    high = value.to(patches.dtype.element_ty).to(tl.float32)
    part = tl.where((entry >= CHANNELS) & (entry < 2 * CHANNELS), value - high, high)
    part = tl.where(entry < 3 * CHANNELS, part, tl.where(entry < 3 * CHANNELS + 2, 1.0, 0.0))
    row = _patch_row(pixel, HEIGHT, LENGTH)
    place = patches + row[:, None] * PATCH + entry
    tl.store(place, part.to(patches.dtype.element_ty), mask=(pixel < rows)[:, None])


@triton.jit
def _mixed(
    patches,
    row,
    lift,  # [16, WIDTH]
    mix,  # [9, WIDTH in, WIDTH out]
    mix_bias,  # [WIDTH]
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """The second hidden layer before its ReLU, by blocks of columns."""
    totals = ()
    for b in tl.static_range(BLOCKS):
        bias = tl.load(mix_bias + COLUMNS[b][0] + tl.arange(0, COLUMNS[b][1]))
        totals = totals + (tl.broadcast_to(bias[None, :], (TILE, COLUMNS[b][1])),)
    for tap in range(9):
        patch = _load_patch(patches, row + _shift(tap, LENGTH + 2))
        for k in tl.static_range(0, WIDTH, DEPTH):
            lifted = tl.dot(patch, _load_matrix(lift, 0, WIDTH, PATCH, k, DEPTH), input_precision="ieee")
            hidden = _positive(lifted, patch, ASSEMBLY)
            totals = _add_products(totals, hidden, mix, tap * WIDTH + k, WIDTH, DEPTH, COLUMNS, BLOCKS)
    return totals


@triton.jit
def _add_products(
    totals, hidden, mix, first, WIDTH: tl.constexpr, DEPTH: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr
):
    """totals + hidden times DEPTH lines of a matrix, from the first."""
    new = ()
    for b in tl.static_range(BLOCKS):
        lines = _load_matrix(mix, first, WIDTH, DEPTH, COLUMNS[b][0], COLUMNS[b][1])
        new = new + (tl.dot(hidden, lines, totals[b], input_precision="ieee"),)
    return new


@triton.jit(do_not_specialize=("rows",))
def field_forward(
    patches,
    lift,  # [16, WIDTH]
    mix,  # [9, WIDTH in, WIDTH out]
    mix_bias,  # [WIDTH]
    lower,  # [c, WIDTH]: float32
    lower_bias,  # [c]
    rates,  # a state
    bits,
    levels,
    scales,
    rows,
    KEEP_BITS: tl.constexpr,
    KEEP_LEVELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    pixel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    # Rows beyond the last pixel compute along with it.
    row = _patch_row(tl.minimum(pixel, rows - 1), HEIGHT, LENGTH)
    totals = _mixed(patches, row, lift, mix, mix_bias, LENGTH, WIDTH, TILE, DEPTH, COLUMNS, BLOCKS, ASSEMBLY)
    if KEEP_LEVELS:
        scale = tl.zeros((TILE,), tl.float32)
        for b in tl.static_range(BLOCKS):
            scale = tl.maximum(scale, tl.max(totals[b], axis=1))
        tl.store(scales + pixel, scale, mask=pixel < rows)
    sums, words = (), tl.zeros((TILE, 4), tl.int32)
    for _ in tl.static_range(CHANNELS):
        sums = sums + (tl.zeros((TILE,), tl.float32),)
    for b in tl.static_range(BLOCKS):
        hidden = _relu(totals[b])
        column = COLUMNS[b][0] + tl.arange(0, COLUMNS[b][1])
        if KEEP_BITS:
            words += _words_of(hidden, COLUMNS[b][0], COLUMNS[b][1])
        if KEEP_LEVELS:
            _store_levels(levels, hidden, scale / TOP, pixel, rows, WIDTH, COLUMNS[b][0], COLUMNS[b][1])
        new = ()
        for ch in tl.static_range(CHANNELS):
            new = new + (sums[ch] + tl.sum(hidden * tl.load(lower + ch * WIDTH + column)[None, :], axis=1),)
        sums = new
    if KEEP_BITS:
        _store_words(bits, words, pixel, rows)
    for ch in tl.static_range(CHANNELS):
        place = _place(pixel, ch, CHANNELS, HEIGHT * LENGTH)
        tl.store(rates + place, sums[ch] + tl.load(lower_bias + ch), mask=pixel < rows)


@triton.jit(do_not_specialize=("rows",))
def field_backward(
    on_patches,  # of the rate's cotangent
    bits,
    lower_back,  # [16, WIDTH]
    mix_back,  # [9, WIDTH out, WIDTH in]: each tap's transpose, the last first
    patches,  # of x
    lift,  # [16, WIDTH]
    lift_back,  # [c, WIDTH]: float32
    on_x,  # a state; added to, where ADD
    shares,  # [tiles, WIDTH, 16]: added to; of what patches are multiplied with
    rows,
    ADD: tl.constexpr,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """The cotangent of the field's input, and the gradients of its first layer."""
    pixel = tl.program_id(0) * TILE + tl.arange(0, TILE)
    held = tl.minimum(pixel, rows - 1)
    row = _patch_row(held, HEIGHT, LENGTH)
    totals = ()
    for b in tl.static_range(BLOCKS):
        totals = totals + (tl.full((TILE, COLUMNS[b][1]), 0.0, tl.float32),)
    for tap in range(9):
        on_patch = _load_patch(on_patches, row + _shift(tap, LENGTH + 2))
        # Over an image's edge these are another pixel's bits, but there the patch is zero.
        other = tl.minimum(tl.maximum(held + _shift(tap, LENGTH), 0), rows - 1)
        words = _load_words(bits, other)
        for k in tl.static_range(0, WIDTH, DEPTH):
            spread = tl.dot(on_patch, _load_matrix(lower_back, 0, WIDTH, PATCH, k, DEPTH), input_precision="ieee")
            on_hidden = _masked(spread, words, on_patch, k, DEPTH, ASSEMBLY)
            totals = _add_products(totals, on_hidden, mix_back, tap * WIDTH + k, WIDTH, DEPTH, COLUMNS, BLOCKS)
    patch, real = _load_patch(patches, row), pixel < rows
    sums = ()
    for _ in tl.static_range(CHANNELS):
        sums = sums + (tl.zeros((TILE,), tl.float32),)
    for b in tl.static_range(BLOCKS):
        column = COLUMNS[b][0] + tl.arange(0, COLUMNS[b][1])
        lines = _load_matrix(lift, 0, WIDTH, PATCH, COLUMNS[b][0], COLUMNS[b][1])
        lifted = tl.dot(patch, lines, input_precision="ieee")
        on_lifted = tl.where((lifted > 0.0) & real[:, None], totals[b], 0.0)
        new = ()
        for ch in tl.static_range(CHANNELS):
            new = new + (sums[ch] + tl.sum(on_lifted * tl.load(lift_back + ch * WIDTH + column)[None, :], axis=1),)
        sums = new
        place = (tl.program_id(0) * WIDTH + column[:, None]) * PATCH + tl.arange(0, PATCH)[None, :]
        share = tl.full((COLUMNS[b][1], PATCH), 0.0, tl.float32)
        _add(shares + place, _over_pixels(on_lifted, patch, share))
    for ch in tl.static_range(CHANNELS):
        place = on_x + _place(pixel, ch, CHANNELS, HEIGHT * LENGTH)
        before = tl.load(place, mask=real, other=0.0) if ADD else 0.0
        tl.store(place, before + sums[ch], mask=real)


@triton.jit(do_not_specialize=("rows",))
def mix_gradient(
    patches,
    on_patches,
    bits,
    lift,  # [16, WIDTH]
    lower_back,  # [16, WIDTH]
    shares,  # [chunks, 9, WIDTH in, WIDTH out]: added to
    rows,
    HEIGHT: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    LINES: tl.constexpr,
    TILE: tl.constexpr,
    TAPS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """The gradient of the mixing convolution's weights: sum_p hidden(p + tap)^T on_hidden(p). A program sums TAPS taps
    over a chunk of pixels; LINES is WIDTH, or the power of two above it."""
    first, chunk = tl.program_id(0) * TAPS, tl.program_id(1)
    line = tl.arange(0, LINES)
    there = (line < WIDTH)[:, None]
    entry = tl.arange(0, PATCH)
    lift_lines = tl.load(lift + entry[None, :] * WIDTH + line[:, None], mask=there, other=0.0)
    totals = ()
    for t in tl.static_range(TAPS):
        for b in tl.static_range(BLOCKS):
            column = COLUMNS[b][0] + tl.arange(0, COLUMNS[b][1])
            place = ((chunk * 9 + first + t) * WIDTH + line[:, None]) * WIDTH + column[None, :]
            totals = totals + (tl.load(shares + place, mask=there, other=0.0),)
    rounds = tl.cdiv(tl.cdiv(rows, TILE), tl.num_programs(1))
    for n in range(rounds):
        pixel = (chunk * rounds + n) * TILE + tl.arange(0, TILE)
        held = tl.minimum(pixel, rows - 1)
        row = _patch_row(held, HEIGHT, LENGTH)
        on_patch = tl.load(on_patches + row[:, None] * PATCH + entry[None, :], mask=(pixel < rows)[:, None], other=0.0)
        on_hidden, words = (), _load_words(bits, held)
        for b in tl.static_range(BLOCKS):
            columns = _load_matrix(lower_back, 0, WIDTH, PATCH, COLUMNS[b][0], COLUMNS[b][1])
            spread = tl.dot(on_patch, columns, input_precision="ieee")
            masked = _masked(spread, words, on_patch, COLUMNS[b][0], COLUMNS[b][1], ASSEMBLY)
            on_hidden = on_hidden + (masked,)
        new = ()
        for t in tl.static_range(TAPS):
            patch = _load_patch(patches, row + _shift(first + t, LENGTH + 2))
            lifted = tl.dot(lift_lines, tl.trans(patch), input_precision="ieee")
            hidden = _positive(lifted, patch, ASSEMBLY)
            for b in tl.static_range(BLOCKS):
                new = new + (tl.dot(hidden, on_hidden[b], totals[t * BLOCKS + b], input_precision="ieee"),)
        totals = new
    for t in tl.static_range(TAPS):
        for b in tl.static_range(BLOCKS):
            column = COLUMNS[b][0] + tl.arange(0, COLUMNS[b][1])
            place = ((chunk * 9 + first + t) * WIDTH + line[:, None]) * WIDTH + column[None, :]
            tl.store(shares + place, totals[t * BLOCKS + b], mask=there)


@triton.jit(do_not_specialize=("rows",))
def lower_gradient(
    on_rates,  # a state
    patches,
    lift,  # [16, WIDTH]
    mix,  # [9, WIDTH in, WIDTH out]
    mix_bias,  # [WIDTH]
    bits,
    levels,
    scales,
    shares,  # [programs, 2, WIDTH, 16]: added to; of hidden, and of ones where it is positive, with the factors below
    bias_shares,  # [programs, 16]: added to
    rows,
    SOURCE: tl.constexpr,
    ROUNDS: tl.constexpr,
    CHANNELS: tl.constexpr,
    HEIGHT: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """The gradient of the last layer, and what that of the mixing bias needs. SOURCE says where the second hidden layer
    comes from: it is "recomputed" (the bits are then written), or read from its "levels", or from its "bits" alone,
    without the first half of the shares. A program sums over ROUNDS tiles.

    The factors of a pixel are high(on_rate) and low(on_rate), room for four of each, and both again in the units that
    its hidden layer is given in.
    """
    # Products from shared memory are better with pixels by lines; those from registers have them so already.
    BY_COLUMN: tl.constexpr = SOURCE == "recomputed"
    entry = tl.arange(0, PATCH)[None, :]
    on_bias, sums, ones = tl.zeros((PATCH,), tl.float32), (), ()
    for b in tl.static_range(BLOCKS):
        sums = sums + (tl.full((COLUMNS[b][1], PATCH) if BY_COLUMN else (PATCH, COLUMNS[b][1]), 0.0, tl.float32),)
        ones = ones + (tl.full((COLUMNS[b][1], PATCH) if BY_COLUMN else (PATCH, COLUMNS[b][1]), 0.0, tl.float32),)
    for n in range(ROUNDS):
        pixel = (tl.program_id(0) * ROUNDS + n) * TILE + tl.arange(0, TILE)
        held = tl.minimum(pixel, rows - 1)
        if SOURCE == "recomputed":
            row = _patch_row(held, HEIGHT, LENGTH)
            totals = _mixed(patches, row, lift, mix, mix_bias, LENGTH, WIDTH, TILE, DEPTH, COLUMNS, BLOCKS, ASSEMBLY)
        place = _place(pixel[:, None], entry % 4, CHANNELS, HEIGHT * LENGTH)
        value = tl.load(on_rates + place, mask=(pixel < rows)[:, None] & (entry % 4 < CHANNELS), other=0.0)
        on_bias += tl.sum(value, axis=0)
        if SOURCE == "levels":
            value *= tl.where(entry < 8, 1.0, (tl.load(scales + held) / TOP)[:, None])
        high = value.to(patches.dtype.element_ty).to(tl.float32)
        factors = tl.where(entry % 8 < 4, high, value - high).to(patches.dtype.element_ty)
        new, new_ones, words = (), (), tl.zeros((TILE, 4), tl.int32)
        if SOURCE == "bits":
            words = _load_words(bits, held)
        for b in tl.static_range(BLOCKS):
            if SOURCE == "recomputed":
                hidden = _relu(totals[b])
                positive = tl.where(hidden > 0.0, 1.0, 0.0).to(factors.dtype)
                words += _words_of(hidden, COLUMNS[b][0], COLUMNS[b][1])
                new = new + (_over_pixels(hidden, factors, sums[b]),)
                new_ones = new_ones + (tl.dot(tl.trans(positive), factors, ones[b], input_precision="ieee"),)
            elif SOURCE == "levels":
                column = COLUMNS[b][0] + tl.arange(0, COLUMNS[b][1])
                level = tl.load(levels + held[:, None] * WIDTH + column[None, :])
                positive = tl.minimum(level, 1).to(factors.dtype)
                new = new + (tl.dot(tl.trans(factors), level.to(factors.dtype), sums[b], input_precision="ieee"),)
            else:
                one = tl.full((TILE, COLUMNS[b][1]), 1.0, tl.float32)
                positive = _masked(one, words, factors, COLUMNS[b][0], COLUMNS[b][1], ASSEMBLY)
                new = new + (sums[b],)
            if not BY_COLUMN:
                new_ones = new_ones + (tl.dot(tl.trans(factors), positive, ones[b], input_precision="ieee"),)
        sums, ones = new, new_ones
        if SOURCE == "recomputed":
            _store_words(bits, words, pixel, rows)
    _add(bias_shares + tl.program_id(0) * PATCH + tl.arange(0, PATCH), on_bias)
    for b in tl.static_range(BLOCKS):
        column = COLUMNS[b][0] + tl.arange(0, COLUMNS[b][1])
        share = shares + (tl.program_id(0) * 2 * WIDTH + column[:, None]) * PATCH + entry
        if SOURCE != "bits":
            _add(share, sums[b] if BY_COLUMN else tl.trans(sums[b]))
        _add(share + WIDTH * PATCH, ones[b] if BY_COLUMN else tl.trans(ones[b]))


@triton.jit
def compare_assembly(
    left,  # [64, 16]
    right,  # [16, SIZE]
    bits,  # [64, 4]
    found,  # [1]
    SIZE: tl.constexpr,
):
    """How many values of a product are rounded or masked by PTX otherwise than without."""
    line, column, entry = tl.arange(0, 64), tl.arange(0, SIZE), tl.arange(0, PATCH)
    like = tl.load(left + line[:, None] * PATCH + entry[None, :])
    values = tl.dot(like, tl.load(right + entry[:, None] * SIZE + column[None, :]), input_precision="ieee")
    words = _load_words(bits, line)
    apart = _positive(values, like, True).to(tl.float32) != _positive(values, like, False).to(tl.float32)
    masked, wanted = _masked(values, words, like, 0, SIZE, True), _masked(values, words, like, 0, SIZE, False)
    apart = apart.to(tl.int32) + (masked.to(tl.float32) != wanted.to(tl.float32)).to(tl.int32)
    tl.store(found, tl.sum(tl.sum(apart, axis=1), axis=0))
