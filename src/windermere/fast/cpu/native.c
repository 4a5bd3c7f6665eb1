/* Whole solves of a field (FIELD: native_sphere.h or native_layers.h), there and back: see native.py.

Samples go in tiles (native_vectors.h) that know nothing of each other, so each thread takes some; with steps that
depend on the error of a whole member, it takes some of the members. A *row* is what one evaluation starts from: z + h
sum_j a_ij k_j for a stage, and with b for a the end of the step, which is the first row of the next. */

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "native_vectors.h"

enum { DONE, FULL, TROUBLE };

const long vector_bytes = BYTES;

typedef struct {
    long members, samples, points, tiles; /* tiles of each member */
    long channels, width;        /* of a sphere network */
    long depth;                  /* of a layered one: */
    const long *units;           /* [depth + 1] */
    const long *activations;     /* [depth] */
    const double *slopes;        /* [depth] */
    long stages;                 /* that propagate */
    long evaluated;              /* with those that only the error estimate needs: the same, or one more that is the
                                    next step's first (FSAL) */
    long room;                   /* steps that rows and sizes have room for */
    long keep;                   /* all rows, for the way back, or only one step's */
    long shared;                 /* whether all members take the first one's steps */
    const REAL *const *weights;  /* of each layer's weight and bias [members][...], as PyTorch has them */
    REAL *const *gradients;
    REAL *layers;                /* [members][...]: what a field makes of its weights */
    const double *tableau;       /* [evaluated + 2][evaluated]: a, b and the error's weights */
    double *sizes;               /* [members][room], or where they are shared [room] */
    long *steps;                 /* [members], or one */
    const REAL *start;           /* [members][samples][points] */
    REAL *end;
    V *rows;                     /* [members][tiles][...][points] */
    V *rates;                    /* [members][tiles][evaluated][entries]; on a fixed grid's way back their cotangents */
    V *notes;                    /* [members][tiles][...][...]: what an evaluation leaves for its way back, for as many
                                    rows as are kept, or one */
    const REAL *on_end;          /* cotangents */
    REAL *on_start;              /* or null, where nobody asks */
    REAL *shares;                /* [members][tiles][...]: of the gradients; for an adjoint, another as a trial's */
    /* What follows is for steps that are chosen. */
    long adjoint;                /* whether cotangents are a part of the state */
    double begin, finish, smallest, budget, order; /* of the error estimate */
    double safety, most_growth, most_shrinking, rounding;
    const double *rtol, *atol;   /* [members] */
    long *evaluations, *rejected, *status; /* [members] */
} Walk;

#include FIELD

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

/* The rates of a step: like all that grows with stages and channels not on the stack, as a thread's may be small. */
static V *rates_of(const Walk *walk, long tile) { return walk->rates + tile * walk->evaluated * entries_of(walk); }

static long steps_of(const Walk *walk, long member) { return walk->steps[walk->shared ? 0 : member]; }

static const double *sizes_of(const Walk *walk, long member) {
    return walk->sizes + (walk->shared ? 0 : member * walk->room);
}

/* A row's notes are kept for the way back, or else until the next row is evaluated. */
static V *notes_of(const Walk *walk, long tile, long row) {
    long kept = walk->keep ? walk->room * walk->stages + 1 : 1;
    return walk->notes + (tile * kept + (walk->keep ? row : 0)) * notes_size(walk);
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
    const double *sizes = sizes_of(walk, member);
    long steps = steps_of(walk, member);
    V *rates = rates_of(walk, tile);
    load(walk, tile, walk->start, rows_of(walk, tile, 0), 0);
    for (long n = 0; n < steps; n++) {
        V *rows = rows_of(walk, tile, n);
        for (long i = 0; i < stages; i++) {
            if (i) combine(rows + i * d, rows, rates, walk->tableau + i * walk->evaluated, i, sizes[n], d);
            evaluate(&field, rows + i * d, notes_of(walk, tile, n * stages + i), rates + i * d);
        }
        const double *b = walk->tableau + walk->evaluated * walk->evaluated;
        combine(walk->keep ? rows + stages * d : rows, rows, rates, b, stages, sizes[n], d);
    }
    store(walk, tile, rows_of(walk, tile, steps), walk->end);
}

static void tile_back(const Walk *walk, long tile) {
    long d = walk->points, stages = walk->stages, member = tile / walk->tiles;
    const Field field = field_of(walk, member);
    const double *sizes = sizes_of(walk, member), *b = walk->tableau + walk->evaluated * walk->evaluated;
    REAL *share = walk->shares + tile * share_size(walk);
    const Gradient on = gradient_in(walk, share);
    V z[d], on_row[d], *on_rates = rates_of(walk, tile);
    memset(share, 0, share_size(walk) * sizeof(REAL));
    load(walk, tile, walk->on_end, z, 1);
    for (long n = steps_of(walk, member) - 1; n >= 0; n--) {
        for (long i = 0; i < stages; i++)
            for (long q = 0; q < d; q++) on_rates[i * d + q] = (REAL)(sizes[n] * b[i]) * z[q];
        for (long i = stages - 1; i >= 0; i--) {
            const V *row = rows_of(walk, tile, n) + i * d;
            const V *notes = notes_of(walk, tile, n * stages + i);
            pull_back(&field, row, notes, on_rates + i * d, on_row, 1, &on);
            for (long q = 0; q < d; q++) z[q] += on_row[q];
            for (long j = 0; j < i; j++)
                for (long q = 0; q < d; q++)
                    on_rates[j * d + q] += (REAL)(sizes[n] * walk->tableau[i * walk->evaluated + j]) * on_row[q];
        }
    }
    if (walk->on_start) store(walk, tile, z, walk->on_start);
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

/* Threads live as long as the work: starting one takes microseconds, and none is left behind at a fork. Their stacks
   are large enough for all fields; where C is musl's, they would have 128 KB. */
static void in_parallel(void (*work)(const Walk *, long), const Walk *walk, long items, long threads) {
    Part parts[threads];
    pthread_t started[threads];
    int failed[threads];
    pthread_attr_t spacious;
    pthread_attr_init(&spacious);
    pthread_attr_setstacksize(&spacious, 4 << 20);
    for (long k = threads - 1; k >= 0; k--) {
        parts[k] = (Part){work, walk, items * k / threads, items * (k + 1) / threads};
        failed[k] = k == 0 || pthread_create(started + k, &spacious, take, parts + k) != 0;
        if (failed[k]) take(parts + k);
    }
    pthread_attr_destroy(&spacious);
    for (long k = 1; k < threads; k++)
        if (!failed[k]) pthread_join(started[k], 0);
}

#include "native_adaptive.h"

/* How many numbers a member's layers, a row's notes on a tile and a tile's share of the gradients take. */
void measure(const Walk *walk, long *found) {
    found[0] = layers_size(walk), found[1] = notes_size(walk) * LANES, found[2] = share_size(walk);
}

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
