/* A tile whose samples choose steps of their own, there and back: what solvers/adaptive.py does for groups of one sample.

All samples of a tile are tried at once, until each is at its end. One that is there, or whose step was rejected, stays
where it is while others go on. A try that any sample accepted is kept, with size 0 for those that did not. Whatever is
out of the ordinary is TROUBLE, as with steps of a whole member. */

/* What the samples of a tile are about: where they are, the next step, and the one that is tried. */
typedef struct {
    double t[LANES], h[LANES], tried[LANES], reached[LANES], begin[LANES], finish[LANES], least[LANES];
    long next[LANES], costs[3][LANES]; /* times asked for that are behind; evaluations, steps accepted and rejected */
    int active[LANES], known[LANES], accepted[LANES];
} Group;

/* A tile is filled up with its last sample. */
static long sample_in(const Walk *walk, long tile, int s) {
    long sample = tile * LANES + s;
    return sample < walk->samples ? sample : walk->samples - 1;
}

static double time_asked(const Walk *walk, long tile, int s, long k) {
    return walk->asked[k * walk->samples + sample_in(walk, tile, s)];
}

/* The try in which a sample passes a time, or the tries before it lands there; -1 for one that is its end again. */
static long *steps_before(const Walk *walk, long tile, long k) { return walk->before + (tile * walk->inner + k) * LANES; }

/* The start, the end and the size of a try that was kept. */
static double *kept_try(const Walk *walk, long tile, long step) { return walk->tries + (tile * walk->room + step) * 3 * LANES; }

static V own_times(const Walk *walk, long stage, const double *from, const double *to) {
    V t;
    for (int s = 0; s < LANES; s++) t[s] = stage_time(walk, stage, from[s], to[s]);
    return t;
}

static V numbers(const double *values, double times) {
    V v;
    for (int s = 0; s < LANES; s++) v[s] = (REAL)(values[s] * times);
    return v;
}

/* z + h sum_i weights_i rate_i, each sample with its own h. */
static void combine_each(V *to, const V *z, const V *rates, const double *weights, long count, const double *h, long d) {
    for (long q = 0; q < d; q++) to[q] = z ? z[q] : (V){0};
    for (long i = 0; i < count; i++) {
        if (weights[i] == 0) continue;
        const V by = numbers(h, weights[i]);
        for (long q = 0; q < d; q++) to[q] += by * rates[i * d + q];
    }
}

/* Root mean squares of value / (atol + rtol |z|), where |z| is the larger of two. */
static void rms_each(const Walk *walk, const V *value, const V *z, const V *other, double *found) {
    const REAL atol = (REAL)*walk->atol, rtol = (REAL)*walk->rtol;
    double sums[LANES] = {0};
    for (long q = 0; q < walk->points; q++) {
        const V one = magnitude(z[q]), two = magnitude(other[q]);
        const V ratio = value[q] / (atol + rtol * pick(one > two, one, two));
        for (int s = 0; s < LANES; s++) sums[s] += (double)ratio[s] * ratio[s];
    }
    for (int s = 0; s < LANES; s++) found[s] = sqrt((REAL)sums[s] / (double)walk->points);
}

/* The first steps (initial_step.py): two evaluations. 0 where something is wrong. */
static int first_steps(const Walk *walk, const Field *field, long tile, Group *own, V *work) {
    long d = walk->points;
    V *z = rows_of(walk, tile, 0), *rates = rates_of(walk, tile), change[d];
    double d0[LANES], d1[LANES], d2[LANES], probed[LANES];
    const double one = 1;
    evaluate(walk, field, numbers(own->begin, 1), z, notes_of(walk, tile, 0), work, rates);
    rms_each(walk, z, z, z, d0);
    rms_each(walk, rates, z, z, d1);
    for (int s = 0; s < LANES; s++) {
        const double begin = own->begin[s], finish = own->finish[s], span = finish - begin;
        if (!isfinite(d0[s]) || !isfinite(d1[s]) || walk->rounding * d0[s] > 0.5) return 0;
        const double h0 = fmin(d0[s] < 1e-5 || d1[s] < 1e-5 ? 1e-6 : 0.01 * d0[s] / d1[s], fabs(span));
        own->tried[s] = copysign(h0, span);
        probed[s] = fmin(fmax(begin + own->tried[s], fmin(begin, finish)), fmax(begin, finish));
    }
    combine_each(z + d, z, rates, &one, 1, own->tried, d);
    evaluate(walk, field, numbers(probed, 1), z + d, notes_of(walk, tile, 1), work, rates + d);
    for (long q = 0; q < d; q++) change[q] = rates[d + q] - rates[q];
    rms_each(walk, change, z, z, d2);
    for (int s = 0; s < LANES; s++) {
        const double h0 = fabs(own->tried[s]), span = own->finish[s] - own->begin[s];
        if (h0 != 0) d2[s] /= h0;
        if (!isfinite(d2[s])) return 0;
        const double largest = fmax(d1[s], d2[s]);
        const double h1 = largest < 1e-15 ? fmax(1e-6, 1e-3 * h0) : pow(0.01 / largest, 1 / walk->order);
        own->h[s] = fmin(fmin(100 * h0, h1), fabs(span));
        own->costs[0][s] = span != 0 ? 2 : 0;
    }
    return 1;
}

/* What each sample tries now; whether any does, and whether one of those needs its first stage. */
static int aim_each(const Walk *walk, long tile, Group *own, int *stale) {
    int any = 0;
    *stale = 0;
    for (int s = 0; s < LANES; s++) {
        const int lands = !walk->dense && own->next[s] < walk->inner;
        const double t = own->t[s], to = lands ? time_asked(walk, tile, s, own->next[s]) : own->finish[s];
        const double left = fabs(to - t), length = own->h[s] >= left * (1 - 1e-10) ? left : own->h[s];
        own->active[s] = t != to;
        own->tried[s] = own->active[s] ? copysign(length, to - t) : 0;
        own->reached[s] = length == left ? to : t + own->tried[s];
        any |= own->active[s];
        *stale |= own->active[s] && !own->known[s];
    }
    return any;
}

/* Accept or reject what was tried, and propose what is next; whether any was accepted, or -1 where something is wrong. */
static int decide_each(const Walk *walk, Group *own, const double *ratio) {
    const int fsal = walk->evaluated > walk->stages;
    int some = 0;
    for (int s = 0; s < LANES; s++) {
        own->accepted[s] = own->active[s] && ratio[s] <= 1;
        if (!own->active[s]) continue;
        if (!isfinite(ratio[s])) return -1;
        const int accepted = own->accepted[s];
        const double factor = walk->safety / pow(ratio[s], 1 / walk->order), length = fabs(own->tried[s]);
        const double proposal = length * fmin(fmax(factor, ratio[s] < 1 ? 1 : walk->most_shrinking), walk->most_growth);
        own->costs[0][s] += walk->evaluated - own->known[s];
        own->costs[accepted ? 1 : 2][s]++;
        own->h[s] = accepted ? fmax(proposal, own->h[s]) : proposal;
        own->known[s] = fsal || !accepted;
        some |= accepted;
        const double t = accepted ? own->reached[s] : own->t[s];
        if (!accepted && own->h[s] < own->least[s]) return -1;
        if (t != own->finish[s] && own->costs[1][s] + own->costs[2][s] >= walk->budget) return -1;
    }
    return some;
}

static void store_one(const Walk *walk, long tile, int s, long k, const V *state) {
    REAL *to = walk->end + output(walk, k) + (tile * LANES + s) * walk->points;
    for (long p = 0; tile * LANES + s < walk->samples && p < walk->points; p++) to[p] = state[p][s];
}

/* Store a sample's states at the times that it passes within the try. */
static void pass_each(const Walk *walk, long tile, Group *own, long step, const V *z, const V *rates) {
    long d = walk->points;
    double weights[walk->evaluated];
    V state[d];
    for (int s = 0; s < LANES; s++) {
        const double sign = own->finish[s] > own->begin[s] ? 1 : -1;
        for (long k = own->next[s]; own->accepted[s] && k < walk->inner; k = ++own->next[s]) {
            const double time = time_asked(walk, tile, s, k);
            if (time == own->finish[s] || sign * (time - own->reached[s]) > 0) break;
            dense_weights(walk, own->t[s], own->reached[s], time, weights);
            combine(state, z, rates, weights, walk->evaluated, 1, d);
            store_one(walk, tile, s, k, state);
            steps_before(walk, tile, k)[s] = step;
        }
    }
}

/* Store the states of samples that are at times asked for, after so many tries. */
static void land_each(const Walk *walk, long tile, Group *own, long tries, const V *z) {
    for (int s = 0; s < LANES && !walk->dense; s++)
        for (; own->next[s] < walk->inner && time_asked(walk, tile, s, own->next[s]) == own->t[s]; own->next[s]++) {
            store_one(walk, tile, s, own->next[s], z);
            steps_before(walk, tile, own->next[s])[s] = tries;
        }
}

/* Go on from where accepted steps led; notes of the first stage go with it, for the way back. */
static void accept_each(const Walk *walk, long tile, Group *own, long step, V *rows, V *rates) {
    long d = walk->points, all = walk->evaluated;
    V *end = rows + walk->stages * d;
    Mask accept;
    for (int s = 0; s < LANES; s++) accept[s] = -own->accepted[s];
    for (long q = 0; q < d; q++) end[q] = pick(accept, end[q], rows[q]);
    for (long q = 0; all > walk->stages && q < d; q++) rates[q] = pick(accept, rates[(all - 1) * d + q], rates[q]);
    if (walk->keep) {
        double *kept = kept_try(walk, tile, step);
        V *before = notes_of(walk, tile, step * walk->stages), *after = notes_of(walk, tile, (step + 1) * walk->stages);
        for (long e = 0; all > walk->stages && e < notes_size(walk); e++) after[e] = pick(accept, after[e], before[e]);
        for (int s = 0; s < LANES; s++) {
            kept[s] = own->t[s], kept[LANES + s] = own->reached[s];
            kept[2 * LANES + s] = own->accepted[s] ? own->tried[s] : 0;
        }
    } else memcpy(rows, end, d * sizeof(V));
    for (int s = 0; s < LANES; s++)
        if (own->accepted[s]) own->t[s] = own->reached[s];
}

static Group group_of(const Walk *walk, long tile) {
    Group own = {{0}};
    for (int s = 0; s < LANES; s++) {
        const long sample = sample_in(walk, tile, s);
        own.t[s] = own.begin[s] = walk->begins[sample];
        own.finish[s] = walk->finishes[sample], own.least[s] = walk->leasts[sample];
        own.known[s] = 1;
    }
    return own;
}

/* Try the steps, with their first stage or without; the errors over the tolerance. */
static void try_each(
    const Walk *walk, const Field *field, long tile, const Group *own, long step, int first, V *work, double *ratio
) {
    long d = walk->points, all = walk->evaluated, stages = walk->stages;
    const double *b = walk->tableau + all * all;
    V *rows = rows_of(walk, tile, step), *end = rows + stages * d, *rates = rates_of(walk, tile), error[d];
    for (long i = !first; i < all; i++) {
        const V t = own_times(walk, i, own->t, own->reached);
        if (i) combine_each(rows + i * d, rows, rates, walk->tableau + i * all, i, own->tried, d);
        evaluate(walk, field, t, rows + i * d, notes_of(walk, tile, step * stages + i), work, rates + i * d);
    }
    if (all == stages) combine_each(end, rows, rates, b, all, own->tried, d);
    combine_each(error, 0, rates, b + all, all, own->tried, d);
    rms_each(walk, error, rows, end, ratio);
}

/* Store the state at the end, also for the times that are it once more, and what it cost. */
static void finish_each(const Walk *walk, long tile, const Group *own, const V *end) {
    store(walk, tile, end, walk->end + output(walk, walk->inner));
    for (int s = 0; s < LANES; s++) {
        for (long k = own->next[s]; k < walk->inner; k++) store_one(walk, tile, s, k, end), steps_before(walk, tile, k)[s] = -1;
        for (int n = 0; n < 3 && tile * LANES + s < walk->samples; n++)
            walk->evaluations[n * walk->samples + tile * LANES + s] = own->costs[n][s];
    }
}

static void tile_adapted(const Walk *walk, long tile) {
    const Field field = field_of(walk, 0);
    long step = 0, taken = 0;
    V *work = work_of(walk, tile);
    Group own = group_of(walk, tile);
    double ratio[LANES];
    int fresh = 0, stale, some; /* fresh: the first stage's notes are not there yet, though its rate is known */
    walk->status[tile] = TROUBLE;
    load(walk, tile, walk->start, rows_of(walk, tile, 0), 0);
    if (!first_steps(walk, &field, tile, &own, work)) return;
    land_each(walk, tile, &own, 0, rows_of(walk, tile, 0));
    while (aim_each(walk, tile, &own, &stale)) {
        if (walk->keep && step == walk->room) {
            walk->status[tile] = FULL;
            return;
        }
        try_each(walk, &field, tile, &own, step, stale || fresh, work, ratio);
        if ((some = decide_each(walk, &own, ratio)) < 0) return;
        fresh = some && walk->keep && walk->evaluated == walk->stages;
        if (!some) continue;
        V *rows = rows_of(walk, tile, step), *rates = rates_of(walk, tile);
        if (walk->dense) pass_each(walk, tile, &own, taken, rows, rates);
        accept_each(walk, tile, &own, step, rows, rates);
        step += walk->keep, taken++;
        land_each(walk, tile, &own, taken, rows_of(walk, tile, step));
    }
    finish_each(walk, tile, &own, rows_of(walk, tile, step));
    walk->steps[tile] = taken;
    walk->status[tile] = DONE;
}

/* The cotangents of the states at a time asked for, of samples with so many tries before it; 0 where there are none. */
static int load_at(const Walk *walk, long tile, long k, long tries, V *on) {
    const long *before = steps_before(walk, tile, k);
    int any = 0;
    for (int s = 0; s < LANES; s++) any |= before[s] == tries;
    if (!any) return 0;
    load(walk, tile, walk->on_end + output(walk, k), on, 1);
    for (long q = 0; q < walk->points; q++)
        for (int s = 0; s < LANES; s++)
            if (before[s] != tries) on[q][s] = 0;
    return 1;
}

/* As add_landed, and as add_dense. */
static void add_landed_each(const Walk *walk, long tile, long tries, V *on_state) {
    V on[walk->points];
    for (long k = 0; k < walk->inner; k++)
        for (long q = 0, any = load_at(walk, tile, k, tries, on); any && q < walk->points; q++) on_state[q] += on[q];
}

static void add_dense_each(const Walk *walk, long tile, long step, V *on_rates, V *on_start, int last) {
    long d = walk->points, all = walk->evaluated;
    const double *from = kept_try(walk, tile, step), *to = from + LANES;
    double weights[all];
    V on[d], by[all];
    for (long k = 0; k < walk->inner; k++) {
        if (!load_at(walk, tile, k, step, on)) continue;
        memset(by, 0, sizeof(by));
        for (int s = 0; s < LANES; s++) {
            if (steps_before(walk, tile, k)[s] != step) continue;
            dense_weights(walk, from[s], to[s], time_asked(walk, tile, s, k), weights);
            for (long i = 0; i < all; i++) by[i][s] = (REAL)weights[i];
        }
        for (long i = last ? all - 1 : 0; i < (last ? all : walk->stages); i++)
            for (long q = 0; q < d; q++) on_rates[(last ? 0 : i) * d + q] += by[i] * on[q];
        for (long q = 0; on_start && q < d; q++) on_start[q] += on[q];
    }
}

static void tile_adapted_back(const Walk *walk, long tile, REAL *share) {
    long d = walk->points, stages = walk->stages, all = walk->evaluated, steps = walk->steps[tile];
    const Field field = field_of(walk, 0);
    const double *b = walk->tableau + all * all;
    const Gradient on = gradient_in(walk, share);
    V z[d], on_row[d], *on_rates = rates_of(walk, tile), *work = work_of(walk, tile);
    const int dense = walk->dense && walk->inner, handed_on = dense && all > stages && steps;
    load(walk, tile, walk->on_end + output(walk, walk->inner), z, 1);
    if (dense) add_landed_each(walk, tile, -1, z);
    if (handed_on) {
        const V t = numbers(kept_try(walk, tile, steps - 1) + LANES, 1), *notes = notes_of(walk, tile, steps * stages);
        memset(on_rates, 0, d * sizeof(V));
        add_dense_each(walk, tile, steps - 1, on_rates, 0, 1);
        pull_back(walk, &field, t, rows_of(walk, tile, steps), notes, work, on_rates, on_row, 1, &on);
        for (long q = 0; q < d; q++) z[q] += on_row[q];
    }
    for (long n = steps - 1; n >= 0; n--) {
        const double *from = kept_try(walk, tile, n), *to = from + LANES, *h = to + LANES;
        if (!dense) add_landed_each(walk, tile, n + 1, z);
        for (long i = 0; i < stages; i++) {
            const V by = numbers(h, b[i]);
            for (long q = 0; q < d; q++) on_rates[i * d + q] = by * z[q];
        }
        if (dense) add_dense_each(walk, tile, n, on_rates, z, 0);
        if (handed_on && n) add_dense_each(walk, tile, n - 1, on_rates, 0, 1);
        for (long i = stages - 1; i >= 0; i--) {
            const V *row = rows_of(walk, tile, n) + i * d, *notes = notes_of(walk, tile, n * stages + i);
            pull_back(walk, &field, own_times(walk, i, from, to), row, notes, work, on_rates + i * d, on_row, 1, &on);
            for (long q = 0; q < d; q++) z[q] += on_row[q];
            for (long j = 0; j < i; j++) {
                const V by = numbers(h, walk->tableau[i * all + j]);
                for (long q = 0; q < d; q++) on_rates[j * d + q] += by * on_row[q];
            }
        }
    }
    if (!dense) add_landed_each(walk, tile, 0, z);
    if (walk->on_start) store(walk, tile, z, walk->on_start);
}
