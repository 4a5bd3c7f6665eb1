/* The sphere networks' field dz/dt = lower relu(mix relu(lift z)) on a tile, there and back: see native.c.

Lifting takes one number at each point, so that what a tap of the mixing makes of it is piecewise linear in z: slope z +
offset, with a kink where a channel begins or ceases to be positive. Both are tabulated for each *segment* between
kinks, and no products of matrices are left. The way back adds up, for each segment, cotangents and cotangents times z;
gradients are sums of these over the segments where a channel is positive, so those that are zero stay exactly zero.

It stays beside native_rows.h, which solves the same network as dense layers, since that takes 1.4 times as long with 2
Euler steps, 4 times with 64, 2.9 times with dopri54 at 1e-4 and 2.5 times by the adjoint (benchmarks/special_spheres.py;
Sphere2, batch 128, there and back): a table instead of products of matrices is what no other field has.

The state is [points] vectors of samples. The width is the number of channels, filled up to a multiple of two vectors
with ones that stay zero. Tap t leads from point p to p + 1 - t. */

#define PAIR (2 * LANES) /* channels at a time: sums of theirs stay in registers */

typedef struct {
    long points, width, kinks;
    const REAL *at;               /* [kinks], in order */
    const REAL *table;            /* [kinks + 1][2][3][width]: each segment's slopes and offsets */
    const REAL *mix_bias, *lower; /* [width] */
    REAL lower_bias;
} Field;

typedef struct {
    REAL *sums;    /* as the table: cotangents times z, and cotangents, of the second layer, before they are lowered */
    V *lower_bias; /* each sample's apart */
} Gradient;

INLINE void halve(const REAL *restrict x, REAL *restrict y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[2 * i] + x[2 * i + 1];
}

/* The sum of each of [LANES] vectors. */
INLINE V fold(const V *parts) {
    V room[2][LANES / 2];
    REAL *from = (REAL *)room[0], *to = (REAL *)room[1];
    halve((const REAL *)parts, from, LANES * LANES / 2);
    for (int n = LANES * LANES / 4; n >= LANES; n /= 2) {
        halve(from, to, n);
        REAL *last = from;
        from = to, to = last;
    }
    return v_at(from);
}

/* Where the rows of the segments that z lies in begin. A kink belongs to the segment below it. */
static void seek(const Field *field, const V *z, Mask *rows) {
    for (long p = 0; p < field->points; p++) {
        Mask count = {0};
        for (long k = 0; k < field->kinks; k++) count -= z[p] > all(field->at[k]);
        rows[p] = count * (Int)(6 * field->width);
    }
}

/* The second layer's channels from c on, of all samples at a point: the rate's part from them, and in bits, two for a
   sample, where they are positive. */
INLINE V second_at(const Field *field, const V *z, const Mask *rows, long p, long c, Mask *active, int from, int to) {
    long n = field->width;
    V bias[2] = {v_at(field->mix_bias + c), v_at(field->mix_bias + c + LANES)};
    V lower[2] = {v_at(field->lower + c), v_at(field->lower + c + LANES)}, parts[LANES];
    Mask bits[2] = {(Mask){0} + 1, (Mask){0} + 2}, found = {0};
    for (int s = 0; s < LANES; s++) {
        V sum[2] = {bias[0], bias[1]};
        for (int t = from; t < to; t++) {
            const REAL *slope = field->table + rows[p + t - 1][s] + t * n + c, *offset = slope + 3 * n;
            for (int k = 0; k < 2; k++) sum[k] += z[p + t - 1][s] * v_at(slope + k * LANES) + v_at(offset + k * LANES);
        }
        for (int k = 0; k < 2; k++) {
            Mask positive = ~(sum[k] <= 0); /* what is not a number stays so */
            found |= positive & bits[k];
            sum[k] = (V)((Mask)sum[k] & positive);
            bits[k] <<= 2;
        }
        parts[s] = lower[0] * sum[0] + lower[1] * sum[1];
    }
    *active = found;
    return fold(parts);
}

/* The rate of change of z; where the second layer is positive is noted for the way back, [points][width / PAIR]. */
static void evaluate(const Walk *walk, const Field *field, V time, const V *z, V *notes, V *work, V *rate) {
    Mask rows[field->points], *active = (Mask *)notes;
    seek(field, z, rows);
    for (long p = 0; p < field->points; p++) {
        int first = p == 0, last = p + 1 == field->points;
        rate[p] = all(field->lower_bias);
        for (long c = 0; c < field->width; c += PAIR, active++)
            rate[p] += first ? last ? second_at(field, z, rows, p, c, active, 1, 2)
                                    : second_at(field, z, rows, p, c, active, 1, 3)
                             : last ? second_at(field, z, rows, p, c, active, 0, 2)
                                    : second_at(field, z, rows, p, c, active, 0, 3);
    }
}

/* The cotangent of z at a point from that of the second layer's channels from c on; the sums for its gradients. */
INLINE V back_at(
    const Field *field, const V *z, const Mask *rows, const Mask *active, const V *on_rate, long p, long c, REAL share,
    REAL *sums, int graded, int from, int to
) {
    long n = field->width, across = n / PAIR;
    V lower[2] = {v_at(field->lower + c), v_at(field->lower + c + LANES)}, parts[LANES];
    Mask bits[2] = {(Mask){0} + 1, (Mask){0} + 2}, found[3];
    for (int t = from; t < to; t++) found[t] = active[(p + 1 - t) * across + c / PAIR];
    for (int s = 0; s < LANES; s++) {
        long row = rows[p][s] + c;
        REAL scaled = share * z[p][s];
        V sum[2] = {{0}, {0}};
        for (int t = from; t < to; t++)
            for (int k = 0; k < 2; k++) {
                long place = row + t * n + k * LANES;
                V on = (V)((Mask)all(on_rate[p + 1 - t][s]) & ((found[t] & bits[k]) != 0));
                sum[k] += on * v_at(field->table + place);
                if (!graded) continue;
                *(V *)(sums + place) += scaled * on;
                *(V *)(sums + place + 3 * n) += share * on;
            }
        for (int k = 0; k < 2; k++) bits[k] <<= 2;
        parts[s] = lower[0] * sum[0] + lower[1] * sum[1];
    }
    return fold(parts);
}

/* Whether there is an `on` is known when this is compiled. */
INLINE void pull(
    const Field *field, const V *z, const Mask *active, const V *on_rate, V *on_z, REAL share, const Gradient *on,
    int graded
) {
    Mask rows[field->points];
    seek(field, z, rows);
    for (long p = 0; p < field->points; p++) {
        int first = p == 0, last = p + 1 == field->points;
        REAL *sums = graded ? on->sums : 0;
        if (graded) *on->lower_bias += share * on_rate[p];
        on_z[p] = (V){0};
        for (long c = 0; c < field->width; c += PAIR)
            on_z[p] += first ? last ? back_at(field, z, rows, active, on_rate, p, c, share, sums, graded, 1, 2)
                                    : back_at(field, z, rows, active, on_rate, p, c, share, sums, graded, 0, 2)
                             : last ? back_at(field, z, rows, active, on_rate, p, c, share, sums, graded, 1, 3)
                                    : back_at(field, z, rows, active, on_rate, p, c, share, sums, graded, 0, 3);
    }
}

/* From the cotangent of a rate to that of z. `share` times the weights' gradients are added up, unless `on` is null. */
static void pull_back(
    const Walk *walk, const Field *field, V time, const V *z, const V *notes, V *work, const V *on_rate, V *on_z,
    REAL share, const Gradient *on
) {
    if (on) pull(field, z, (const Mask *)notes, on_rate, on_z, share, on, 1);
    else pull(field, z, (const Mask *)notes, on_rate, on_z, share, on, 0);
}

#include "native_table.h"
