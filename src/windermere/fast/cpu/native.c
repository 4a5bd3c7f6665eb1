/* Whole solves of a field (FIELD: native_sphere.h or native_rows.h), there and back: see native.py.

Samples go in tiles (native_vectors.h) that know nothing of each other, so each thread takes some; with steps that
depend on the error of a whole member, it takes some of the members. A *row* is what one evaluation starts from: z + h
sum_j a_ij k_j for a stage, and with b for a the end of the step, which is the first row of the next. */

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "native_vectors.h"
#include "native_math.h"

enum { DONE, FULL, TROUBLE };

const long vector_bytes = BYTES;

/* One operation of a row program (native_rows.h). */
typedef struct {
    long code, kind, n, in;
    long to, a, b, matrix;      /* addresses; where a matrix lies, or where a derivative is noted */
    long to_step, a_step, b_step, add;
    double x, y;
} Instruction;

/* Where a part of an external tensor lies in the layers or in a share: a row (out = 0), or a matrix. */
typedef struct {
    long external, offset, in, out, by_in, by_out, place;
} Block;

typedef struct {
    long members, samples, points, tiles; /* tiles of each member */
    long channels, width;        /* of a sphere network */
    const Instruction *ops;      /* of a row program: so many there, and so many back */
    long there, back;
    const Block *block;          /* so many that are laid out, and so many with gradients */
    long blocks, graded;
    const double *constants;
    long laid, noted, shared_out, working; /* sizes: of layers, notes, shares and of room to work in */
    long stages;                 /* that propagate */
    long evaluated;              /* with those that only the error estimate needs: the same, or one more that is the
                                    next step's first (FSAL) */
    long room;                   /* steps that rows and sizes have room for */
    long keep;                   /* all rows, for the way back, or only one step's */
    long checkpoint;             /* states before steps, and the way back evaluates the rest again */
    long shared;                 /* whether all members take the first one's steps */
    const REAL *const *weights;  /* of each layer's weight and bias [members][...], as PyTorch has them */
    REAL *const *gradients;
    REAL *layers;                /* [members][...]: what a field makes of its weights */
    const double *tableau;       /* [evaluated + 3][evaluated]: a, b, the error's weights and the times c */
    const double *dense;         /* [evaluated][degree] of the continuous extension; or null, where steps land on times */
    long degree;
    double *nodes;               /* as sizes, and one more: the times between steps */
    double *sizes;               /* [members][room], or where they are shared [room] */
    long *steps;                 /* [members], or one */
    const REAL *start;           /* [members][samples][points] */
    long inner;                  /* times asked for between the first and the last: of one member */
    double *inner_times;         /* [inner] */
    long *inner_steps;           /* [inner]: how many steps lie before; of dense output, before the one that it is in */
    REAL *end;                   /* [inner + 1][members][samples][points] */
    V *rows;                     /* [members][tiles][...][points] */
    V *starts;                   /* [members][tiles][room + 1][points]: states before steps, of a checkpoint */
    V *rates;                    /* [members][tiles][evaluated][entries], and room to work in, of each tile, or of each
                                    member where it chooses its steps; on a fixed grid's way back their cotangents */
    V *notes;                    /* [members][tiles][...][...]: what an evaluation leaves for its way back, for as many
                                    rows as are kept; or else the last one's, as room to work in */
    const REAL *on_end;          /* cotangents */
    REAL *on_start;              /* or null, where nobody asks */
    REAL *shares;                /* [members][...][...]: of the gradients; for an adjoint [4][members][...] or [2]: see
                                    native_adaptive.h */
    long sharing;                /* tiles that add to one share, one after the other */
    V *redone;                   /* [members][shares]: a step's rows, rates and notes, on a checkpoint's way back */
    REAL *memory;                /* where layers, rows, starts, rates and notes lie, one after the other */
    long for_layers, for_rows, for_starts, for_rates; /* how many numbers each takes */
    /* What follows is for steps that are chosen. */
    long adjoint;                /* whether cotangents are a part of the state */
    long reuse;                  /* whether a step of its may take over a first stage that is known already */
    double *choice;              /* all of the rest, in this order; then nodes, sizes, inner times, steps and inner steps */
    double begin, finish, smallest, budget, order; /* of the error estimate */
    double safety, most_growth, most_shrinking, rounding;
    double *rtol, *atol;         /* [members] */
    long *evaluations, *rejected, *status; /* [members] */
    /* Where samples choose their own (native_samples.h), `choice` is null. Then evaluations are [3][samples], with steps
       accepted and rejected, and status and steps are [tiles]. */
    long by_sample;
    const double *begins, *finishes, *leasts; /* [samples] */
    const double *asked;         /* [inner][samples]: times between */
    double *tries;               /* [tiles][room][3][LANES]: from, to and size, 0 where it was rejected */
    long *before;                /* [tiles][inner][LANES]: tries before a time asked for */
} Walk;

/* How many shares of its gradients a member has. */
static long shares_of(const Walk *walk) {
    return walk->adjoint ? 1 : (walk->tiles + walk->sharing - 1) / walk->sharing;
}

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

/* Room to work in, of a tile, or of a member where all its tiles are one thread's: then it stays in the cache. */
static V *work_of(const Walk *walk, long place) {
    return rates_of(walk, walk->members * walk->tiles) + place * work_size(walk);
}

static long steps_of(const Walk *walk, long member) { return walk->steps[walk->shared ? 0 : member]; }

static const double *nodes_of(const Walk *walk, long member) {
    return walk->nodes + (walk->shared ? 0 : member * (walk->room + 1));
}

/* The time of a stage of a step from one node to the next. */
static REAL stage_time(const Walk *walk, long stage, double from, double to) {
    const double c = walk->tableau[(walk->evaluated + 2) * walk->evaluated + stage];
    return (REAL)(c == 1 ? to : from + c * (to - from));
}

/* The states at one of the times asked for, or their cotangents. */
static long output(const Walk *walk, long k) { return k * walk->members * walk->samples * walk->points; }

static const double *sizes_of(const Walk *walk, long member) {
    return walk->sizes + (walk->shared ? 0 : member * walk->room);
}

/* A row's notes are kept for the way back, or else until the next row is evaluated: by this tile, or by any of the
   member's where one thread has them all. */
static V *notes_of(const Walk *walk, long tile, long row) {
    if (!walk->keep) return walk->notes + (walk->choice ? tile / walk->tiles : tile) * notes_size(walk);
    return walk->notes + (tile * (walk->room * walk->stages + 1) + row) * notes_size(walk);
}

static V *start_of(const Walk *walk, long tile, long step) {
    return walk->starts + (tile * (walk->room + 1) + step) * walk->points;
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
    long d = walk->points, stages = walk->stages, member = tile / walk->tiles, next = 0;
    const Field field = field_of(walk, member);
    const double *sizes = sizes_of(walk, member), *nodes = nodes_of(walk, member);
    long steps = steps_of(walk, member);
    V *rates = rates_of(walk, tile), *work = work_of(walk, tile);
    load(walk, tile, walk->start, rows_of(walk, tile, 0), 0);
    for (long n = 0; n < steps; n++) {
        V *rows = rows_of(walk, tile, n);
        if (walk->checkpoint) memcpy(start_of(walk, tile, n), rows, d * sizeof(V));
        for (long i = 0; i < stages; i++) {
            const REAL t = stage_time(walk, i, nodes[n], nodes[n + 1]);
            if (i) combine(rows + i * d, rows, rates, walk->tableau + i * walk->evaluated, i, sizes[n], d);
            evaluate(walk, &field, all(t), rows + i * d, notes_of(walk, tile, n * stages + i), work, rates + i * d);
        }
        const double *b = walk->tableau + walk->evaluated * walk->evaluated;
        combine(walk->keep ? rows + stages * d : rows, rows, rates, b, stages, sizes[n], d);
        for (; next < walk->inner && walk->inner_steps[next] == n + 1; next++)
            store(walk, tile, rows_of(walk, tile, n + 1), walk->end + output(walk, next));
    }
    store(walk, tile, rows_of(walk, tile, steps), walk->end + output(walk, walk->inner));
}

/* The weights of a step's rates in the state at a time within it. */
static void dense_weights(const Walk *walk, double from, double to, double time, double *weights) {
    const double at = (time - from) / (to - from);
    for (long i = 0; i < walk->evaluated; i++) {
        weights[i] = 0;
        for (long j = walk->degree - 1; j >= 0; j--) weights[i] = (weights[i] + walk->dense[i * walk->degree + j]) * at;
        weights[i] *= to - from;
    }
}

/* What cotangents of the states within a step add to those of its rates: all but the last one's, where that is the next
   step's first, or it alone. Where there is an `on_start`, they are added to it, too. */
static void add_dense(const Walk *walk, long tile, long step, V *on_rates, V *on_start, int last) {
    long d = walk->points, member = tile / walk->tiles, all = walk->evaluated;
    const double *nodes = nodes_of(walk, member);
    double weights[all];
    V on[d];
    for (long k = 0; k < walk->inner; k++) {
        if (walk->inner_steps[k] != step) continue;
        load(walk, tile, walk->on_end + output(walk, k), on, 1);
        dense_weights(walk, nodes[step], nodes[step + 1], walk->inner_times[k], weights);
        for (long i = last ? all - 1 : 0; i < (last ? all : walk->stages); i++)
            for (long q = 0; q < d; q++) on_rates[(last ? 0 : i) * d + q] += (REAL)weights[i] * on[q];
        for (long q = 0; on_start && q < d; q++) on_start[q] += on[q];
    }
}

/* The cotangents of states at times asked for where a step ended. */
static void add_landed(const Walk *walk, long tile, long steps, V *on_state) {
    long d = walk->points;
    V on[d];
    for (long k = 0; k < walk->inner; k++) {
        if (walk->inner_steps[k] != steps) continue;
        load(walk, tile, walk->on_end + output(walk, k), on, 1);
        for (long q = 0; q < d; q++) on_state[q] += on[q];
    }
}

/* What the way back of a step reads: rows, and what their evaluations left. */
typedef struct {
    V *rows, *notes;
} Step;

static long redone_size(const Walk *walk) {
    return (walk->stages + walk->evaluated) * walk->points + walk->stages * notes_size(walk);
}

/* Of so many of a step's stages, or for 0 of the row at the very end: as kept, or evaluated again from the state before
   the step. */
static Step step_of(const Walk *walk, const Field *field, long tile, long place, long n, long count, V *work) {
    if (!walk->checkpoint) return (Step){rows_of(walk, tile, n), notes_of(walk, tile, n * walk->stages)};
    long d = walk->points, member = tile / walk->tiles, size = walk->evaluated;
    const double *nodes = nodes_of(walk, member), h = count ? sizes_of(walk, member)[n] : 0;
    V *rows = walk->redone + place * redone_size(walk), *rates = rows + walk->stages * d, *notes = rates + size * d;
    memcpy(rows, start_of(walk, tile, n), d * sizeof(V));
    for (long i = 0; i < (count ? count : 1); i++) {
        const REAL t = count ? stage_time(walk, i, nodes[n], nodes[n + 1]) : (REAL)nodes[n];
        if (i) combine(rows + i * d, rows, rates, walk->tableau + i * size, i, h, d);
        evaluate(walk, field, all(t), rows + i * d, notes + i * notes_size(walk), work, rates + i * d);
    }
    return (Step){rows, notes};
}

static void tile_back(const Walk *walk, long tile, long place, REAL *share) {
    long d = walk->points, stages = walk->stages, member = tile / walk->tiles, steps = steps_of(walk, member);
    const Field field = field_of(walk, member);
    const double *sizes = sizes_of(walk, member), *nodes = nodes_of(walk, member);
    const double *b = walk->tableau + walk->evaluated * walk->evaluated;
    const Gradient on = gradient_in(walk, share);
    V z[d], on_row[d], *on_rates = rates_of(walk, tile), *work = work_of(walk, tile);
    const int dense = walk->dense && walk->inner, handed_on = dense && walk->evaluated > stages;
    load(walk, tile, walk->on_end + output(walk, walk->inner), z, 1);
    if (handed_on) { /* the rate at the very end, which only states within the last step depend on */
        const Step end = step_of(walk, &field, tile, place, steps, 0, work);
        memset(on_rates, 0, d * sizeof(V));
        add_dense(walk, tile, steps - 1, on_rates, 0, 1);
        pull_back(walk, &field, all((REAL)nodes[steps]), end.rows, end.notes, work, on_rates, on_row, 1, &on);
        for (long q = 0; q < d; q++) z[q] += on_row[q];
    }
    for (long n = steps - 1; n >= 0; n--) {
        const Step step = step_of(walk, &field, tile, place, n, stages, work);
        if (walk->inner && !dense) add_landed(walk, tile, n + 1, z);
        for (long i = 0; i < stages; i++)
            for (long q = 0; q < d; q++) on_rates[i * d + q] = (REAL)(sizes[n] * b[i]) * z[q];
        if (dense) add_dense(walk, tile, n, on_rates, z, 0);
        if (handed_on && n) add_dense(walk, tile, n - 1, on_rates, 0, 1);
        for (long i = stages - 1; i >= 0; i--) {
            const V *row = step.rows + i * d, *notes = step.notes + i * notes_size(walk);
            const REAL t = stage_time(walk, i, nodes[n], nodes[n + 1]);
            pull_back(walk, &field, all(t), row, notes, work, on_rates + i * d, on_row, 1, &on);
            for (long q = 0; q < d; q++) z[q] += on_row[q];
            for (long j = 0; j < i; j++)
                for (long q = 0; q < d; q++)
                    on_rates[j * d + q] += (REAL)(sizes[n] * walk->tableau[i * walk->evaluated + j]) * on_row[q];
        }
    }
    if (walk->on_start) store(walk, tile, z, walk->on_start);
}

#ifdef OWN_STEPS
#include "native_samples.h"
#endif

/* The tiles that add to a share. */
static void share_back(const Walk *walk, long place) {
    long member = place / shares_of(walk), first = place % shares_of(walk) * walk->sharing, end = first + walk->sharing;
    REAL *share = walk->shares + place * share_size(walk);
    memset(share, 0, share_size(walk) * sizeof(REAL));
    for (long tile = first; tile < end && tile < walk->tiles; tile++) {
#ifdef OWN_STEPS
        if (walk->by_sample) {
            tile_adapted_back(walk, tile, share);
            continue;
        }
#endif
        tile_back(walk, member * walk->tiles + tile, place, share);
    }
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
#include "native_classifier.h"

/* Where the parts of a solve's memory lie. */
static void lay_out(Walk *walk) {
    walk->layers = walk->memory;
    walk->rows = (V *)(walk->layers + walk->for_layers);
    walk->starts = (V *)((REAL *)walk->rows + walk->for_rows);
    walk->rates = (V *)((REAL *)walk->starts + walk->for_starts);
    walk->notes = (V *)((REAL *)walk->rates + walk->for_rates);
}

/* Where what is known of a choice of steps lies, and what is to be found. */
static void take_choice(Walk *walk) {
    double *numbers[] = {&walk->begin, &walk->finish, &walk->smallest, &walk->budget, &walk->order, &walk->safety,
                         &walk->most_growth, &walk->most_shrinking, &walk->rounding};
    double *at = walk->choice;
    for (int k = 0; k < 9; k++) *numbers[k] = *at++;
    double **const reals[] = {&walk->rtol, &walk->atol, &walk->nodes, &walk->sizes, &walk->inner_times};
    long **const whole[] = {&walk->evaluations, &walk->rejected, &walk->status, &walk->steps, &walk->inner_steps};
    const long m = walk->members, lengths[] = {m, m, m * (walk->room + 1), m * walk->room, walk->inner, m, m, m, m, 0};
    for (int k = 0; k < 10; at += lengths[k++])
        if (k < 5) *reals[k] = at;
        else *whole[k - 5] = (long *)at;
}

/* How many numbers a member's layers, a row's notes on a tile and a tile's share of the gradients take, room to work in
   on a tile, and a step that is evaluated again. */
void measure(const Walk *walk, long *found) {
    found[0] = layers_size(walk), found[1] = notes_size(walk) * LANES, found[2] = share_size(walk);
    found[3] = work_size(walk) * LANES, found[4] = redone_size(walk) * LANES;
}

void there(Walk *walk, long threads) {
    lay_out(walk);
    in_parallel(lay, walk, walk->members, 1);
    in_parallel(tile_there, walk, walk->members * walk->tiles, threads);
}

void back(Walk *walk, long threads) {
    V *const own = walk->rates; /* those of the way there may be another thread's as well */
    lay_out(walk);
    walk->rates = own;
    in_parallel(share_back, walk, walk->members * shares_of(walk), threads);
    in_parallel(sum_up, walk, walk->members, 1);
}

void adapt(Walk *walk, long threads) {
    lay_out(walk);
    take_choice(walk);
    in_parallel(lay, walk, walk->members, 1);
    in_parallel(member_adapted, walk, walk->members, threads);
    if (walk->adjoint) in_parallel(sum_up, walk, walk->members, 1);
}

#ifdef OWN_STEPS
void adapt_samples(Walk *walk, long threads) {
    lay_out(walk);
    in_parallel(lay, walk, 1, 1);
    in_parallel(tile_adapted, walk, walk->tiles, threads);
}
#endif

void adjoin(Walk *walk, long threads) {
    lay_out(walk);
    in_parallel(lay, walk, walk->members, 1);
    in_parallel(member_walked, walk, walk->members, threads);
    in_parallel(sum_up, walk, walk->members, 1);
}
