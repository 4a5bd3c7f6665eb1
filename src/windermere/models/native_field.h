/* The sphere networks' field dz/dt = lower relu(mix relu(lift z)) on a tile, there and back: see native.c.

A tile is LANES samples side by side; one value of all of them is a vector V. The state is [points] vectors, a hidden
layer [points][width]. Lifting and lowering are the same at each point; mixing is a convolution with three taps, each a
matrix [in][out]. The width is the number of channels, filled up to a multiple of LANES with ones that stay zero. */

#define LANES (64 / (int)sizeof(REAL))
#define BLOCK 8 /* sums that are kept in registers; divides LANES */

typedef REAL V __attribute__((vector_size(64)));
typedef __typeof__((V){0} < (V){0}) Mask;

typedef struct {
    long points, width;
    const REAL *taps, *back; /* [3][width][width]; those for the way back are turned round, and in reverse order */
    const REAL *lift, *lift_bias, *mix_bias, *lower; /* [width] */
    REAL lower_bias;
} Field;

typedef struct {
    REAL *mix, *mix_bias;        /* [3][width][width], [width] */
    V *lift, *lift_bias, *lower; /* [width], each sample's apart */
    V *lower_bias;
} Gradient;

static inline V where_positive(V value, V x) { /* what is not a number stays so */
    return (V)((Mask)value & ~(x <= 0));
}

static inline V total(const V *sum) {
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* y = x m + bias, or + shared */
static inline void product(const REAL *m, const REAL *bias, const V *shared, const V *x, V *y, long in, long out) {
    for (long o = 0; o < out; o += BLOCK) {
        V sum[BLOCK];
        for (int k = 0; k < BLOCK; k++) sum[k] = shared ? shared[o + k] : (V){0} + (bias ? bias[o + k] : 0);
        for (long i = 0; i < in; i++)
            for (int k = 0; k < BLOCK; k++) sum[k] += m[i * out + o + k] * x[i];
        for (int k = 0; k < BLOCK; k++) y[o + k] = sum[k];
    }
}

/* Each point takes itself and its neighbours. Two points need three products, not four:
   A x0 + B x1 = A (x0 + x1) + (B - A) x1, and likewise for the other; so B - A is what the taps at the sides hold. */
static void mix(const Field *field, const REAL *taps, const REAL *bias, const V *x, V *y) {
    long n = field->width, size = n * n;
    if (field->points == 2) {
        V sum[n], shared[n];
        for (long c = 0; c < n; c++) sum[c] = x[c] + x[n + c];
        product(taps + size, bias, 0, sum, shared, n, n);
        product(taps + 2 * size, 0, shared, x + n, y, n, n);
        product(taps, 0, shared, x, y + n, n, n);
        return;
    }
    for (long p = 0; p < field->points; p++) {
        long from = p ? p - 1 : 0, to = p + 2 < field->points ? p + 2 : field->points;
        product(taps + (from - p + 1) * size, bias, 0, x + from * n, y + p * n, (to - from) * n, n);
    }
}

/* y, [out] vectors of samples, as vectors of outputs: [out / LANES][samples]. */
static void turn(const V *y, V *turned, long out) {
    for (long o = 0; o < out; o += LANES) {
        V block[LANES];
        for (int s = 0; s < LANES; s++)
            for (int k = 0; k < LANES; k++) block[s][k] = y[o + k][s];
        memcpy(turned + o, block, sizeof(block));
    }
}

/* Add the sum over samples of x[i] y[o] to a gradient; y is turned. On the way, what lies ahead is fetched into the
   cache bit by bit: all at once, it would be waited for. */
static void gather(REAL *gradient, const V *x, const V *y, long in, long out, const V **ahead) {
    const REAL *each = (const REAL *)x;
    for (long o = 0; o < out; o += LANES) {
        V turned[LANES];
        memcpy(turned, y + o, sizeof(turned));
        for (long i = 0; i < in; i += BLOCK) {
            V sum[BLOCK];
            for (int k = 0; k < 3; k++) __builtin_prefetch((*ahead)++);
            for (int k = 0; k < BLOCK; k++) sum[k] = *(V *)(gradient + (i + k) * out + o);
            for (int s = 0; s < LANES; s++)
                for (int k = 0; k < BLOCK; k++) sum[k] += each[(i + k) * LANES + s] * turned[s];
            for (int k = 0; k < BLOCK; k++) *(V *)(gradient + (i + k) * out + o) = sum[k];
        }
    }
}

static void gather_bias(REAL *gradient, const V *y, REAL share, long out) {
    for (long o = 0; o < out; o += LANES) {
        V sum = {0};
        for (int s = 0; s < LANES; s++) sum += y[o + s];
        *(V *)(gradient + o) += share * sum;
    }
}

/* The gradients of the taps and of the bias. Here two points take four products: three would turn gradients that are
   zero into rounding errors, which Adam takes as seriously as any other gradient. */
static void gather_mix(const Field *field, const Gradient *on, REAL share, const V *x, const V *y, const V *ahead) {
    long n = field->width, size = n * n;
    V turned[n];
    for (long p = 0; p < field->points; p++) {
        long from = p ? p - 1 : 0, to = p + 2 < field->points ? p + 2 : field->points;
        turn(y + p * n, turned, n);
        gather(on->mix + (from - p + 1) * size, x + from * n, turned, (to - from) * n, n, &ahead);
        gather_bias(on->mix_bias, turned, share, n);
    }
}

static void lift(const Field *field, const V *z, V *first) {
    for (long p = 0; p < field->points; p++)
        for (long c = 0; c < field->width; c++) {
            V value = field->lift[c] * z[p] + field->lift_bias[c];
            first[p * field->width + c] = where_positive(value, value);
        }
}

static void second_layer(const Field *field, const V *z, V *second) {
    V first[field->points * field->width];
    lift(field, z, first);
    mix(field, field->taps, field->mix_bias, first, second);
    for (long c = 0; c < field->points * field->width; c++) second[c] = where_positive(second[c], second[c]);
}

/* The rate of change of z; the second hidden layer is left for the way back. */
static void evaluate(const Field *field, const V *z, V *second, V *rate) {
    second_layer(field, z, second);
    for (long p = 0; p < field->points; p++) {
        V sum[BLOCK] = {(V){0} + field->lower_bias};
        for (long c = 0; c < field->width; c += BLOCK)
            for (int k = 0; k < BLOCK; k++) sum[k] += field->lower[c + k] * second[p * field->width + c + k];
        rate[p] = total(sum);
    }
}

/* The cotangent of the second layer, from that of the rate. */
static void to_second(
    const Field *field, const V *second, const V *on_rate, V *on_second, REAL share, const Gradient *on
) {
    long n = field->width;
    for (long p = 0; p < field->points; p++) {
        V scaled = share * on_rate[p];
        if (on) *on->lower_bias += scaled;
        for (long c = 0; c < n; c++) {
            V value = second[p * n + c];
            on_second[p * n + c] = where_positive(field->lower[c] * on_rate[p], value);
            if (on) on->lower[c] += scaled * value;
        }
    }
}

/* The cotangent of z, from that of the first layer before its relu. */
static void to_state(
    const Field *field, const V *z, const V *first, const V *on_first, V *on_z, REAL share, const Gradient *on
) {
    long n = field->width;
    for (long p = 0; p < field->points; p++) {
        V sum[BLOCK] = {0}, scaled = share * z[p];
        for (long c = 0; c < n; c += BLOCK)
            for (int k = 0; k < BLOCK; k++) {
                V value = where_positive(on_first[p * n + c + k], first[p * n + c + k]);
                sum[k] += field->lift[c + k] * value;
                if (!on) continue;
                on->lift[c + k] += scaled * value;
                on->lift_bias[c + k] += share * value;
            }
        on_z[p] = total(sum);
    }
}

/* From the cotangent of a rate to that of z. `share` times the weights' gradients are added up, unless `on` is null.
   `ahead` is the second layer that will be asked for next. */
static void pull_back(
    const Field *field, const V *z, const V *second, const V *on_rate, V *on_z, REAL share, const Gradient *on,
    const V *ahead
) {
    long values = field->points * field->width;
    V first[values], on_first[values], on_second[values];
    to_second(field, second, on_rate, on_second, share, on);
    mix(field, field->back, 0, on_second, on_first);
    lift(field, z, first);
    to_state(field, z, first, on_first, on_z, share, on);
    if (!on) return;
    for (long c = 0; share != 1 && c < values; c++) first[c] *= share;
    gather_mix(field, on, share, first, on_second, ahead);
}
