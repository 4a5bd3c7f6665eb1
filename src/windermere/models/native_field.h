/* The sphere networks' field dz/dt = lower relu(mix relu(lift z)) on a tile, there and back: see native.c.

Lifting takes one number at each point, so that what a tap of the mixing makes of it is piecewise linear in z: slope z +
offset, with a kink where a channel begins or ceases to be positive. Both are tabulated for each *segment* between
kinks, and no products of matrices are left. The way back adds up, for each segment, cotangents and cotangents times z;
gradients are sums of these over the segments where a channel is positive, so those that are zero stay exactly zero.

A tile is LANES samples; a vector V holds one value of all of them, or LANES channels of one. The state is [points]
vectors of samples. The width is the number of channels, filled up to a multiple of two vectors with ones that stay
zero. Tap t leads from point p to p + 1 - t. */

#define LANES (64 / (int)sizeof(REAL))
#define PAIR (2 * LANES) /* channels at a time: sums of theirs stay in registers */
#define INLINE static inline __attribute__((always_inline))

typedef REAL V __attribute__((vector_size(64)));
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int)0, (long)0)) Int;
typedef Int Mask __attribute__((vector_size(64))); /* or numbers as large as REAL */
typedef signed char Bytes __attribute__((vector_size(64 / sizeof(REAL)))); /* a mask, to be kept */

typedef struct {
    long points, width, kinks;
    const REAL *at;       /* [kinks], in order */
    const REAL *table;    /* [kinks + 1][2][3][width]: each segment's slopes and offsets */
    const REAL *mix_bias, *lower; /* [width] */
    REAL lower_bias;
} Field;

typedef struct {
    REAL *sums;    /* as the table: cotangents times z, and cotangents, of the second layer, before they are lowered */
    V *lower_bias; /* each sample's apart */
} Gradient;

INLINE V v_at(const REAL *from) { return *(const V *)from; }

static long row_size(const Field *field) { return 6 * field->width; }

/* The sum of each of [LANES] vectors. */
INLINE V fold(REAL *x) {
    for (long n = LANES * LANES / 2; n >= LANES; n /= 2)
        for (long i = 0; i < n; i++) x[i] = x[2 * i] + x[2 * i + 1];
    return v_at(x);
}

/* Where the rows of the segments that z lies in begin. A kink belongs to the segment below it. */
static void seek(const Field *field, const V *z, Mask *rows) {
    for (long p = 0; p < field->points; p++) {
        Mask count = {0};
        for (long k = 0; k < field->kinks; k++) count -= z[p] > field->at[k];
        rows[p] = count * (int)row_size(field);
    }
}

/* The second layer's channels from c on, of all samples at a point; the rate's part from them. */
INLINE V second_at(const Field *field, const V *z, const Mask *rows, long p, long c, Bytes *active, int from, int to) {
    long n = field->width;
    V bias[2] = {v_at(field->mix_bias + c), v_at(field->mix_bias + c + LANES)};
    V lower[2] = {v_at(field->lower + c), v_at(field->lower + c + LANES)}, parts[LANES];
    for (int s = 0; s < LANES; s++) {
        V sum[2] = {bias[0], bias[1]};
        for (int t = from; t < to; t++) {
            const REAL *slope = field->table + rows[p + t - 1][s] + t * n + c, *offset = slope + 3 * n;
            for (int k = 0; k < 2; k++) sum[k] += z[p + t - 1][s] * v_at(slope + k * LANES) + v_at(offset + k * LANES);
        }
        for (int k = 0; k < 2; k++) {
            Mask positive = ~(sum[k] <= 0); /* what is not a number stays so */
            active[2 * s + k] = __builtin_convertvector(positive, Bytes);
            sum[k] = (V)((Mask)sum[k] & positive);
        }
        parts[s] = lower[0] * sum[0] + lower[1] * sum[1];
    }
    return fold((REAL *)parts);
}

/* The rate of change of z; where the second layer is positive is left for the way back. */
static void evaluate(const Field *field, const V *z, Bytes *active, V *rate) {
    Mask rows[field->points];
    seek(field, z, rows);
    for (long p = 0; p < field->points; p++) {
        rate[p] = (V){0} + field->lower_bias;
        for (long c = 0; c < field->width; c += PAIR, active += 2 * LANES) {
            int first = p == 0, last = p + 1 == field->points;
            rate[p] += first ? last ? second_at(field, z, rows, p, c, active, 1, 2)
                                    : second_at(field, z, rows, p, c, active, 1, 3)
                             : last ? second_at(field, z, rows, p, c, active, 0, 2)
                                    : second_at(field, z, rows, p, c, active, 0, 3);
        }
    }
}

/* The cotangent of z at a point from that of the second layer's channels from c on; the sums for its gradients. */
INLINE V back_at(
    const Field *field, const V *z, const Mask *rows, const Bytes *active, const V *on_rate, long p, long c, REAL share,
    REAL *sums, int from, int to
) {
    long n = field->width;
    V lower[2] = {v_at(field->lower + c), v_at(field->lower + c + LANES)}, parts[LANES];
    for (int s = 0; s < LANES; s++) {
        long row = rows[p][s];
        REAL scaled = share * z[p][s];
        V sum[2] = {{0}, {0}};
        for (int t = from; t < to; t++)
            for (int k = 0; k < 2; k++) {
                long q = p + 1 - t, place = row + t * n + c + k * LANES;
                Mask kept = __builtin_convertvector(active[q * n + c + 2 * s + k], Mask);
                V on = (V)((Mask)((V){0} + on_rate[q][s]) & kept);
                sum[k] += on * v_at(field->table + place);
                if (!sums) continue;
                *(V *)(sums + place) += scaled * on;
                *(V *)(sums + place + 3 * n) += share * on;
            }
        parts[s] = lower[0] * sum[0] + lower[1] * sum[1];
    }
    return fold((REAL *)parts);
}

/* From the cotangent of a rate to that of z. `share` times the weights' gradients are added up, unless `on` is null. */
static void pull_back(
    const Field *field, const V *z, const Bytes *active, const V *on_rate, V *on_z, REAL share, const Gradient *on
) {
    Mask rows[field->points];
    REAL *sums = on ? on->sums : 0;
    seek(field, z, rows);
    for (long p = 0; p < field->points; p++) {
        if (on) *on->lower_bias += share * on_rate[p];
        on_z[p] = (V){0};
        for (long c = 0; c < field->width; c += PAIR) {
            int first = p == 0, last = p + 1 == field->points;
            on_z[p] += first ? last ? back_at(field, z, rows, active, on_rate, p, c, share, sums, 1, 2)
                                    : back_at(field, z, rows, active, on_rate, p, c, share, sums, 0, 2)
                             : last ? back_at(field, z, rows, active, on_rate, p, c, share, sums, 1, 3)
                                    : back_at(field, z, rows, active, on_rate, p, c, share, sums, 0, 3);
        }
    }
}
