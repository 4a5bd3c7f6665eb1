/* A whole fixed-step solve of dz/dt = W3 relu(W2 relu(W1 z + b1) + b2) + b3, there and back: see native.py.

A tile is LANES samples side by side; one value of all of them is a vector V, a layer of n values is n vectors. Tiles
know nothing of each other, a tile's work stays in the cache, and each thread takes some of them. Matrices are
[in][out], row by row; the hidden layers' width is a multiple of LANES. A row is what one evaluation starts from. */

#include <string.h>

#define LANES (64 / (int)sizeof(REAL))
#define BLOCK 8 /* outputs that are summed in registers; divides LANES */

typedef REAL V __attribute__((vector_size(64)));

typedef struct {
    long points, width, stages, steps, tiles; /* tiles of each member */
    long keep;                                /* all rows, for the way back, or only one step's */
    const double *tableau;                    /* [stages + 1][stages]: a, and b as its last line */
    const double *sizes;                      /* [members][steps] */
    const REAL *layers;                       /* [members][...]: W1, b1, W2, b2, W3, b3, and the W transposed */
    V *inputs;                                /* [members][tiles][rows][points]: first the start, last the end */
    V *hidden;                                /* [members][tiles][evaluations][width]: second layers, or null */
    V *cotangents;                            /* [members][tiles][points]: of the end, then of the start */
    REAL *on_mix;                             /* [members][tiles][width][width]: gradient of W2 */
    V *on_others;                             /* [members][tiles][...]: of W1, b1, b2, W3, b3, each sample's apart */
} Walk;

typedef struct {
    const REAL *w1, *b1, *w2, *b2, *w3, *b3, *w1t, *w2t, *w3t;
} Layers;

static V *tile_rows(const Walk *walk, long tile) {
    return walk->inputs + tile * ((walk->keep ? walk->steps : 1) * walk->stages + 1) * walk->points;
}

/* Where the second layer of an evaluation is kept for the way back, or else this room. */
static V *second_of(const Walk *walk, long tile, long evaluation, V *room) {
    return walk->hidden ? walk->hidden + (tile * walk->steps * walk->stages + evaluation) * walk->width : room;
}

static Layers layers_of(const Walk *walk, long member) {
    long d = walk->points, n = walk->width;
    const REAL *w1 = walk->layers + member * (2 * n * n + 4 * d * n + 2 * n + d), *b1 = w1 + d * n;
    const REAL *w2 = b1 + n, *b2 = w2 + n * n, *w3 = b2 + n, *b3 = w3 + n * d, *w1t = b3 + d;
    return (Layers){w1, b1, w2, b2, w3, b3, w1t, w1t + n * d, w1t + n * d + n * n};
}

/* y = x m + bias */
static void product(const REAL *m, const REAL *bias, const V *x, V *y, long in, long out) {
    long o = 0;
    for (; o + BLOCK <= out; o += BLOCK) {
        V sum[BLOCK];
        for (int k = 0; k < BLOCK; k++) sum[k] = (V){0} + (bias ? bias[o + k] : 0);
        for (long i = 0; i < in; i++)
            for (int k = 0; k < BLOCK; k++) sum[k] += m[i * out + o + k] * x[i];
        for (int k = 0; k < BLOCK; k++) y[o + k] = sum[k];
    }
    for (; o < out; o++) {
        V sum = (V){0} + (bias ? bias[o] : 0);
        for (long i = 0; i < in; i++) sum += m[i * out + o] * x[i];
        y[o] = sum;
    }
}

static void relu(V *values, long n) {
    REAL *x = (REAL *)values;
    for (long i = 0; i < n * LANES; i++) x[i] = x[i] < 0 ? 0 : x[i]; /* what is not a number stays so */
}

static void through_relu(V *cotangent, const V *values, long n) {
    REAL *c = (REAL *)cotangent;
    const REAL *x = (const REAL *)values;
    for (long i = 0; i < n * LANES; i++) c[i] = x[i] <= 0 ? 0 : c[i];
}

/* relu(x m + bias) */
static void layer(const REAL *m, const REAL *bias, const V *x, V *y, long in, long out) {
    product(m, bias, x, y, in, out);
    relu(y, out);
}

/* Add x[i] y[o] to a gradient, each sample's apart. */
static void gather(V *gradient, const V *x, const V *y, long in, long out) {
    for (long i = 0; i < in; i++)
        for (long o = 0; o < out; o++) gradient[i * out + o] += x[i] * y[o];
}

static void gather_bias(V *gradient, const V *y, long out) {
    for (long o = 0; o < out; o++) gradient[o] += y[o];
}

/* Add the sum over samples of x[i] y[o] to a gradient. Its vectors are LANES outputs, so y is turned round. */
static void gather_summed(REAL *gradient, const V *x, const V *y, long in, long out) {
    const REAL *each = (const REAL *)x;
    for (long o = 0; o < out; o += LANES) {
        V turned[LANES];
        for (int s = 0; s < LANES; s++)
            for (int k = 0; k < LANES; k++) turned[s][k] = y[o + k][s];
        for (long i = 0; i < in; i += BLOCK) {
            V sum[BLOCK];
            for (int k = 0; k < BLOCK; k++) sum[k] = *(V *)(gradient + (i + k) * out + o);
            for (int s = 0; s < LANES; s++)
                for (int k = 0; k < BLOCK; k++) sum[k] += each[(i + k) * LANES + s] * turned[s];
            for (int k = 0; k < BLOCK; k++) *(V *)(gradient + (i + k) * out + o) = sum[k];
        }
    }
}

/* A stage's input is z + h sum_j a_ij k_j, and so is the step's end, with b for a. */
static void tile_there(const Walk *walk, long tile) {
    long d = walk->points, width = walk->width, stages = walk->stages, member = tile / walk->tiles;
    const Layers own = layers_of(walk, member);
    const double *sizes = walk->sizes + member * walk->steps;
    V first[width], room[width], rate[d];
    for (long n = 0; n < walk->steps; n++) {
        V *step = tile_rows(walk, tile) + (walk->keep ? n * stages * d : 0);
        if (n && !walk->keep) memcpy(step, step + stages * d, d * sizeof(V));
        for (long i = 0; i < stages; i++) {
            V *second = second_of(walk, tile, n * stages + i, room);
            layer(own.w1, own.b1, step + i * d, first, d, width);
            layer(own.w2, own.b2, first, second, width, width);
            product(own.w3, own.b3, second, rate, width, d);
            for (long j = i + 1; j <= stages; j++) {
                REAL share = (REAL)(sizes[n] * walk->tableau[j * stages + i]);
                for (long q = 0; q < d; q++) step[j * d + q] = (i ? step[j * d + q] : step[q]) + share * rate[q];
            }
        }
    }
}

/* z is the cotangent of the end, and becomes that of the start. Hidden layers that were not kept are computed again. */
static void tile_back(const Walk *walk, long tile, V *z) {
    long d = walk->points, width = walk->width, stages = walk->stages, member = tile / walk->tiles;
    const Layers own = layers_of(walk, member);
    const double *sizes = walk->sizes + member * walk->steps;
    REAL *on_w2 = walk->on_mix + tile * width * width;
    V *on_w1 = walk->on_others + tile * (2 * d * width + 2 * width + d), *on_b1 = on_w1 + d * width;
    V *on_b2 = on_b1 + width, *on_w3 = on_b2 + width, *on_b3 = on_w3 + width * d;
    V first[width], room[width], on_first[width], on_second[width], on_input[d], on_rates[stages][d];
    for (long n = walk->steps - 1; n >= 0; n--) {
        for (long i = 0; i < stages; i++) {
            REAL share = (REAL)(sizes[n] * walk->tableau[stages * stages + i]);
            for (long q = 0; q < d; q++) on_rates[i][q] = share * z[q];
        }
        for (long i = stages - 1; i >= 0; i--) {
            const V *x = tile_rows(walk, tile) + (n * stages + i) * d;
            V *second = second_of(walk, tile, n * stages + i, room);
            layer(own.w1, own.b1, x, first, d, width);
            if (!walk->hidden) layer(own.w2, own.b2, first, second, width, width);
            gather(on_w3, second, on_rates[i], width, d);
            gather_bias(on_b3, on_rates[i], d);
            product(own.w3t, 0, on_rates[i], on_second, d, width);
            through_relu(on_second, second, width);
            gather_summed(on_w2, first, on_second, width, width);
            gather_bias(on_b2, on_second, width);
            product(own.w2t, 0, on_second, on_first, width, width);
            through_relu(on_first, first, width);
            gather(on_w1, x, on_first, d, width);
            gather_bias(on_b1, on_first, width);
            product(own.w1t, 0, on_first, on_input, width, d);
            for (long q = 0; q < d; q++) z[q] += on_input[q];
            for (long j = 0; j < i; j++) {
                REAL share = (REAL)(sizes[n] * walk->tableau[i * stages + j]);
                for (long q = 0; q < d; q++) on_rates[j][q] += share * on_input[q];
            }
        }
    }
}

void there(const Walk *walk, long begin, long end) {
    for (long tile = begin; tile < end; tile++) tile_there(walk, tile);
}

void back(const Walk *walk, long begin, long end) {
    for (long tile = begin; tile < end; tile++) tile_back(walk, tile, walk->cotangents + tile * walk->points);
}
