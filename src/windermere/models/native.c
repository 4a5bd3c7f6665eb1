/* Whole solves of the sphere networks' field, there and back: see native.py.

Samples go in tiles (native_field.h) that know nothing of each other, so each thread takes some; with steps that depend
on the error of a whole member, it takes some of the members. A *row* is what one evaluation starts from: z + h sum_j
a_ij k_j for a stage, and with b for a the end of the step, which is the first row of the next. */

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "native_field.h"

#define NEXT(x, to) (sizeof(REAL) == 4 ? (REAL)nextafterf((float)(x), to) : (REAL)nextafter(x, to))

enum { DONE, FULL, TROUBLE };

typedef struct {
    long members, samples, points, channels, width, tiles; /* tiles of each member */
    long stages;                 /* that propagate */
    long evaluated;              /* with those that only the error estimate needs: the same, or one more that is the
                                    next step's first (FSAL) */
    long room;                   /* steps that rows and sizes have room for */
    long keep;                   /* all rows, for the way back, or only one step's */
    const REAL *weights[6];      /* [members][...]: weights and biases of lift, mix, lower, as PyTorch has them */
    REAL *gradients[6];
    REAL *layers;                /* [members][...]: a field's table, and what else it needs */
    const double *tableau;       /* [evaluated + 2][evaluated]: a, b and the error's weights */
    double *sizes;               /* [members][room] */
    long *steps;                 /* [members] */
    const REAL *start;           /* [members][samples][points] */
    REAL *end;
    V *rows;                     /* [members][tiles][...][points] */
    Mask *hidden;                /* [members][tiles][...][points][width / PAIR]: where second layers are positive, or null */
    const REAL *on_end;          /* cotangents */
    REAL *on_start;
    REAL *shares;                /* [members][tiles][...]: of the gradients; for an adjoint, another as a trial's */
    /* What follows is for steps that are chosen. */
    V *rates;                    /* [members][tiles][evaluated][entries] */
    long adjoint;                /* whether cotangents are a part of the state */
    double begin, finish, smallest, budget, order; /* of the error estimate */
    double safety, most_growth, most_shrinking, rounding;
    const double *rtol, *atol;   /* [members] */
    long *evaluations, *rejected, *status; /* [members] */
} Walk;

static long table_size(const Walk *walk) { return (walk->channels + 1) * 6 * walk->width; }

static long layers_size(const Walk *walk) {
    return table_size(walk) + 3 * walk->channels * walk->width + 5 * walk->width + LANES;
}

static long share_size(const Walk *walk) { return table_size(walk) + LANES; }

/* A member's table, and its weights as they were when the solve began: they may change before the way back. */
typedef struct {
    REAL *table, *mixing; /* [segments][2][3][width], [3][in][out] */
    REAL *at, *lift, *lift_bias, *mix_bias, *lower, *lower_bias;
} Layers;

static Layers layers_of(const Walk *walk, long member) {
    long n = walk->width;
    REAL *table = walk->layers + member * layers_size(walk), *mixing = table + table_size(walk);
    REAL *rest = mixing + 3 * walk->channels * n;
    return (Layers){table, mixing, rest, rest + n, rest + 2 * n, rest + 3 * n, rest + 4 * n, rest + 5 * n};
}

static Field field_of(const Walk *walk, long member) {
    const Layers own = layers_of(walk, member);
    return (Field){
        walk->points, walk->width, walk->channels, own.at, own.table, own.mix_bias, own.lower, *own.lower_bias
    };
}

static Gradient gradient_in(const Walk *walk, REAL *share) {
    return (Gradient){share, (V *)(share + table_size(walk))};
}

/* A channel of the first layer, relu(weight z + bias). */
typedef struct {
    REAL weight, bias, at; /* the largest z of the segment below its kink */
    long channel;
    int rising;            /* positive above its kink, or else below it */
} Kink;

static Kink kink_of(const Layers *own, long channel) {
    REAL weight = own->lift[channel], bias = own->lift_bias[channel], at = -bias / weight;
    if (weight < 0) at = NEXT(at, -INFINITY); /* at its kink, no channel is positive */
    if (weight == 0) at = bias <= 0 ? INFINITY : -INFINITY;
    if (at != at) at = -INFINITY; /* so that what is not a number is found everywhere */
    return (Kink){weight, bias, at, channel, !(weight < 0)};
}

static void sort_kinks(const Walk *walk, const Layers *own, Kink *kinks) {
    for (long c = 0; c < walk->channels; c++) {
        const Kink kink = kink_of(own, c);
        long k = c;
        for (; k && kinks[k - 1].at > kink.at; k--) kinks[k] = kinks[k - 1];
        kinks[k] = kink;
    }
}

static void copy_weights(const Walk *walk, long member, const Layers *own) {
    long n = walk->width, m = walk->channels;
    memset(own->mixing, 0, (layers_size(walk) - table_size(walk)) * sizeof(REAL));
    const REAL *mixing = walk->weights[2] + member * m * m * 3; /* [out][in][3] */
    for (long o = 0; o < m; o++)
        for (long i = 0; i < m; i++)
            for (long t = 0; t < 3; t++) own->mixing[(t * m + i) * n + o] = mixing[(o * m + i) * 3 + t];
    REAL *const copies[] = {own->lift, own->lift_bias, own->mix_bias, own->lower};
    const int kinds[] = {0, 1, 3, 4};
    for (int k = 0; k < 4; k++) memcpy(copies[k], walk->weights[kinds[k]] + member * m, m * sizeof(REAL));
    *own->lower_bias = walk->weights[5][member];
}

/* Add a channel's weights, times its slope and its offset, to a row of the table. */
static void add_channel(const Walk *walk, const Layers *own, const Kink *kink, REAL *row) {
    long n = walk->width, m = walk->channels;
    for (long t = 0; t < 3; t++) {
        const REAL *mixing = own->mixing + (t * m + kink->channel) * n;
        for (long o = 0; o < n; o++) row[t * n + o] += kink->weight * mixing[o];
        for (long o = 0; o < n; o++) row[(t + 3) * n + o] += kink->bias * mixing[o];
    }
}

/* A member's table. Rising channels are added from below, falling ones from above: nothing is ever taken away. */
static void lay(const Walk *walk, long member) {
    const Layers own = layers_of(walk, member);
    long m = walk->channels, size = 6 * walk->width;
    REAL row[size];
    Kink kinks[m];
    copy_weights(walk, member, &own);
    sort_kinks(walk, &own, kinks);
    memset(row, 0, sizeof(row));
    for (long k = 0; k <= m; k++) {
        if (k && kinks[k - 1].rising) add_channel(walk, &own, kinks + k - 1, row);
        memcpy(own.table + k * size, row, sizeof(row));
    }
    memset(row, 0, sizeof(row));
    for (long k = m - 1; k >= 0; k--) {
        own.at[k] = kinks[k].at;
        if (!kinks[k].rising) add_channel(walk, &own, kinks + k, row);
        for (long e = 0; e < size; e++) own.table[k * size + e] += row[e];
    }
}

/* A channel's gradients, from the sums over all segments where it is positive. */
static void give_channel(const Walk *walk, long member, const Layers *own, const Kink *kink, const REAL *sums) {
    long n = walk->width, m = walk->channels;
    REAL *on_mixing = walk->gradients[2] + (member * m * m + kink->channel) * 3, on_weight = 0, on_bias = 0;
    for (long t = 0; t < 3; t++) {
        const REAL *mixing = own->mixing + (t * m + kink->channel) * n;
        for (long o = 0; o < m; o++) {
            REAL with_z = own->lower[o] * sums[t * n + o], alone = own->lower[o] * sums[(t + 3) * n + o];
            on_mixing[o * m * 3 + t] = kink->weight * with_z + kink->bias * alone;
            on_weight += mixing[o] * with_z;
            on_bias += mixing[o] * alone;
        }
    }
    walk->gradients[0][member * m + kink->channel] = on_weight;
    walk->gradients[1][member * m + kink->channel] = on_bias;
}

/* The gradients of the second layer's bias, and of the weights that lower it. */
static void give_outputs(const Walk *walk, long member, const Layers *own, const REAL *sums) {
    long n = walk->width, m = walk->channels;
    REAL on_bias[n], on_lower[n];
    memset(on_bias, 0, sizeof(on_bias));
    memset(on_lower, 0, sizeof(on_lower));
    for (long row = 0; row < (m + 1) * 6; row++)
        for (long o = 0; o < n; o++) {
            on_lower[o] += own->table[row * n + o] * sums[row * n + o];
            if (row % 6 == 4) on_bias[o] += sums[row * n + o]; /* the middle tap is there at every point */
        }
    for (long o = 0; o < m; o++) {
        walk->gradients[3][member * m + o] = own->lower[o] * on_bias[o];
        walk->gradients[4][member * m + o] = own->mix_bias[o] * on_bias[o] + on_lower[o];
    }
}

/* The sum of all tiles' shares, always in the same order, and the gradients from it, as PyTorch has the weights. */
static void sum_up(const Walk *walk, long member) {
    const Layers own = layers_of(walk, member);
    long m = walk->channels, length = 6 * walk->width, size = share_size(walk);
    REAL *total = walk->shares + member * walk->tiles * size, row[length], on_lower_bias = 0;
    Kink kinks[m];
    for (long tile = 1; tile < walk->tiles; tile++)
        for (long k = 0; k < size; k++) total[k] += total[tile * size + k];
    sort_kinks(walk, &own, kinks);
    memset(row, 0, sizeof(row));
    for (long k = 0; k < m; k++) {
        for (long e = 0; e < length; e++) row[e] += total[k * length + e];
        if (!kinks[k].rising) give_channel(walk, member, &own, kinks + k, row);
    }
    memset(row, 0, sizeof(row));
    for (long k = m - 1; k >= 0; k--) {
        for (long e = 0; e < length; e++) row[e] += total[(k + 1) * length + e];
        if (kinks[k].rising) give_channel(walk, member, &own, kinks + k, row);
    }
    give_outputs(walk, member, &own, total);
    for (int s = 0; s < LANES; s++) on_lower_bias += total[table_size(walk) + s];
    walk->gradients[5][member] = on_lower_bias;
}

/* A tile's samples of a state [members][samples][points], and back. A tile is filled up with its last sample: another
   one might blow up where none of them does, and zero times that is no zero. Cotangents are filled up with zeros. */
static void load(const Walk *walk, long tile, const REAL *state, V *to, int cotangents) {
    long d = walk->points, first = tile % walk->tiles * LANES, left = walk->samples - first;
    const REAL *from = state + (tile / walk->tiles * walk->samples + first) * d;
    for (long s = 0; s < LANES; s++)
        for (long p = 0; p < d; p++)
            to[p][s] = s < left ? from[s * d + p] : cotangents ? 0 : from[(left - 1) * d + p];
}

static void store(const Walk *walk, long tile, const V *from, REAL *state) {
    long d = walk->points, first = tile % walk->tiles * LANES;
    REAL *to = state + (tile / walk->tiles * walk->samples + first) * d;
    for (long s = 0; s < LANES && first + s < walk->samples; s++)
        for (long p = 0; p < d; p++) to[s * d + p] = from[p][s];
}

static long entries_of(const Walk *walk) { return walk->points * (walk->adjoint ? 2 : 1); }

/* The rows of a step. */
static V *rows_of(const Walk *walk, long tile, long step) {
    long kept = walk->keep ? walk->room : 1;
    return walk->rows + (tile * (kept * walk->stages + 1) + (walk->keep ? step * walk->stages : 0)) * entries_of(walk);
}

/* Where a row's second layer is positive is kept for the way back, or else in this room. */
static Mask *active_of(const Walk *walk, long tile, long row, Mask *room) {
    long size = walk->points * walk->width / PAIR;
    return walk->hidden ? walk->hidden + (tile * (walk->room * walk->stages + 1) + row) * size : room;
}

/* z + h sum_i weights_i rate_i */
static void combine(V *to, const V *z, const V *rates, const double *weights, long count, double h, long entries) {
    for (long q = 0; q < entries; q++) {
        V sum = z ? z[q] : (V){0};
        for (long i = 0; i < count; i++)
            if (weights[i] != 0) sum += (REAL)(h * weights[i]) * rates[i * entries + q];
        to[q] = sum;
    }
}

static void tile_there(const Walk *walk, long tile) {
    long d = walk->points, stages = walk->stages, member = tile / walk->tiles;
    const Field field = field_of(walk, member);
    const double *sizes = walk->sizes + member * walk->room;
    V rates[stages * d];
    Mask room[d * walk->width / PAIR];
    load(walk, tile, walk->start, rows_of(walk, tile, 0), 0);
    for (long n = 0; n < walk->steps[member]; n++) {
        V *rows = rows_of(walk, tile, n);
        for (long i = 0; i < stages; i++) {
            if (i) combine(rows + i * d, rows, rates, walk->tableau + i * walk->evaluated, i, sizes[n], d);
            evaluate(&field, rows + i * d, active_of(walk, tile, n * stages + i, room), rates + i * d);
        }
        const double *b = walk->tableau + walk->evaluated * walk->evaluated;
        combine(walk->keep ? rows + stages * d : rows, rows, rates, b, stages, sizes[n], d);
    }
    store(walk, tile, rows_of(walk, tile, walk->steps[member]), walk->end);
}

/* Where second layers are positive is found again if it was not kept. */
static void tile_back(const Walk *walk, long tile) {
    long d = walk->points, stages = walk->stages, member = tile / walk->tiles;
    const Field field = field_of(walk, member);
    const double *sizes = walk->sizes + member * walk->room, *b = walk->tableau + walk->evaluated * walk->evaluated;
    REAL *share = walk->shares + tile * share_size(walk);
    const Gradient on = gradient_in(walk, share);
    V z[d], on_row[d], on_rates[stages * d];
    Mask room[d * walk->width / PAIR];
    memset(share, 0, share_size(walk) * sizeof(REAL));
    load(walk, tile, walk->on_end, z, 1);
    for (long n = walk->steps[member] - 1; n >= 0; n--) {
        for (long i = 0; i < stages; i++)
            for (long q = 0; q < d; q++) on_rates[i * d + q] = (REAL)(sizes[n] * b[i]) * z[q];
        for (long i = stages - 1; i >= 0; i--) {
            const V *row = rows_of(walk, tile, n) + i * d;
            Mask *active = active_of(walk, tile, n * stages + i, room);
            if (!walk->hidden) evaluate(&field, row, active, on_row);
            pull_back(&field, row, active, on_rates + i * d, on_row, 1, &on);
            for (long q = 0; q < d; q++) z[q] += on_row[q];
            for (long j = 0; j < i; j++)
                for (long q = 0; q < d; q++)
                    on_rates[j * d + q] += (REAL)(sizes[n] * walk->tableau[i * walk->evaluated + j]) * on_row[q];
        }
    }
    store(walk, tile, z, walk->on_start);
}

typedef struct {
    void (*work)(const Walk *, long);
    const Walk *walk;
    long begin, end;
} Part;

static void *take(void *given) {
    const Part *part = given;
    for (long k = part->begin; k < part->end; k++) part->work(part->walk, k);
    return 0;
}

/* Threads live as long as the work: starting one takes microseconds, and none is left behind at a fork. */
static void in_parallel(void (*work)(const Walk *, long), const Walk *walk, long items, long threads) {
    Part parts[threads];
    pthread_t started[threads];
    int failed[threads];
    for (long k = threads - 1; k >= 0; k--) {
        parts[k] = (Part){work, walk, items * k / threads, items * (k + 1) / threads};
        failed[k] = k == 0 || pthread_create(started + k, 0, take, parts + k) != 0;
        if (failed[k]) take(parts + k);
    }
    for (long k = 1; k < threads; k++)
        if (!failed[k]) pthread_join(started[k], 0);
}

#include "native_adaptive.h"

void there(const Walk *walk, long threads) {
    in_parallel(lay, walk, walk->members, 1);
    in_parallel(tile_there, walk, walk->members * walk->tiles, threads);
}

void back(const Walk *walk, long threads) {
    in_parallel(tile_back, walk, walk->members * walk->tiles, threads);
    in_parallel(sum_up, walk, walk->members, 1);
}

void adapt(const Walk *walk, long threads) {
    in_parallel(lay, walk, walk->members, 1);
    in_parallel(member_adapted, walk, walk->members, threads);
    if (walk->adjoint) in_parallel(sum_up, walk, walk->members, 1);
}
