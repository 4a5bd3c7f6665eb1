/* A member's solve with steps chosen from the estimated error: what solvers/adaptive.py does, for one group.

Whatever is out of the ordinary (values that are not finite, steps that vanish, a budget that is spent) is TROUBLE: then
Python does it all again, and says what is wrong. With the adjoint, a tile's state is z and its cotangent a, going
backwards in time: da/dt = -a^T df/dz, and the weights' gradients are a sum over accepted steps of -h b_i a^T df/dp.

A first stage that is known from the step before has its share of these gradients from there, too. How long the next step
will be, nobody knows then, so that share is kept as it is for b_0 h = -1. */

typedef struct {
    const Walk *walk;
    Field field;
    long member, step; /* steps accepted so far, where rows are kept; else 0 */
    double t, reached, h;
    int reuse; /* an adjoint's first stages, too */
} Trial;

/* The shares of an adjoint's gradients, of all tiles together: of accepted steps, of the trial, and where first stages
   are reused those of its first stage and of its last one, which is the next step's first. */
enum { ACCEPTED, PENDING, FIRST, LAST };

static V *trial_rates(const Trial *trial, long k) {
    return rates_of(trial->walk, trial->member * trial->walk->tiles + k);
}

static V *trial_rows(const Trial *trial, long k) {
    return rows_of(trial->walk, trial->member * trial->walk->tiles + k, trial->step);
}

static REAL *trial_share(const Trial *trial, int which) {
    const Walk *walk = trial->walk;
    return walk->shares + (which * walk->members + trial->member) * share_size(walk);
}

static void clear_share(const Trial *trial, int which) {
    memset(trial_share(trial, which), 0, share_size(trial->walk) * sizeof(REAL));
}

static void add_share(const Trial *trial, int which, REAL times) {
    const REAL *share = trial_share(trial, which);
    REAL *total = trial_share(trial, ACCEPTED);
    for (long e = 0, size = share_size(trial->walk); e < size; e++) total[e] += times * share[e];
}

/* Which share of the gradients a stage adds to, and how much. */
static int share_of_stage(const Trial *trial, long i, double *much) {
    const Walk *walk = trial->walk;
    const int is_next = i == walk->evaluated - 1 && walk->evaluated > walk->stages;
    if (trial->reuse && (!i || is_next)) {
        *much = is_next && trial->reached == walk->finish ? 0 : -1; /* after the last step comes none */
        return i ? LAST : FIRST;
    }
    *much = -trial->h * walk->tableau[walk->evaluated * walk->evaluated + i];
    return PENDING;
}

/* The rate at stage i of tile k, at a time. */
static void evaluate_stage(const Trial *trial, long k, long i, REAL t) {
    const Walk *walk = trial->walk;
    long d = walk->points, entries = entries_of(walk), tile = trial->member * walk->tiles + k;
    V *row = trial_rows(trial, k) + i * entries, *rate = trial_rates(trial, k) + i * entries;
    V *notes = notes_of(walk, tile, trial->step * walk->stages + i), *work = work_of(walk, trial->member);
    evaluate(walk, &trial->field, all(t), row, notes, work, rate);
    if (!walk->adjoint) return;
    double share;
    const Gradient on = gradient_in(walk, trial_share(trial, share_of_stage(trial, i, &share)));
    pull_back(walk, &trial->field, all(t), row, notes, work, row + d, rate + d, (REAL)share, share != 0 ? &on : 0);
    for (long p = 0; p < d; p++) rate[d + p] = -rate[d + p];
}

/* The sum of squares of value / (atol + rtol |z|), where |z| is the larger of two. */
static double squares(const Trial *trial, long k, const V *value, const V *z, const V *other) {
    const Walk *walk = trial->walk;
    const REAL atol = (REAL)walk->atol[trial->member], rtol = (REAL)walk->rtol[trial->member];
    long left = walk->samples - k * LANES;
    double sums[LANES] = {0}, sum = 0;
    for (long q = 0; q < entries_of(walk); q++) {
        const V one = magnitude(z[q]), two = magnitude(other[q]);
        const V ratio = value[q] / (atol + rtol * pick(one > two, one, two));
        for (int s = 0; s < LANES; s++) sums[s] += (double)ratio[s] * ratio[s];
    }
    for (long s = 0; s < LANES && s < left; s++) sum += sums[s];
    return sum;
}

/* Infinite where REAL has no such number, as in Python. */
static double rms(const Trial *trial, double squares) {
    return sqrt((REAL)squares / ((double)trial->walk->samples * entries_of(trial->walk)));
}

/* The first step (initial_step.py), or one that is not a number where something is wrong: two evaluations. */
static double first_step(Trial *trial) {
    const Walk *walk = trial->walk;
    long entries = entries_of(walk);
    double d0 = 0, d1 = 0, d2 = 0, span = walk->finish - walk->begin;
    for (long k = 0; k < walk->tiles; k++) {
        V *z = trial_rows(trial, k), *rate = trial_rates(trial, k);
        evaluate_stage(trial, k, 0, (REAL)walk->begin);
        d0 += squares(trial, k, z, z, z), d1 += squares(trial, k, rate, z, z);
    }
    d0 = rms(trial, d0), d1 = rms(trial, d1);
    if (!isfinite(d0) || !isfinite(d1) || walk->rounding * d0 > 0.5) return NAN;
    double h0 = fmin(d0 < 1e-5 || d1 < 1e-5 ? 1e-6 : 0.01 * d0 / d1, fabs(span));
    const double one = 1, far = fmax(walk->begin, walk->finish), near = fmin(walk->begin, walk->finish);
    const double probed = fmin(fmax(walk->begin + copysign(h0, span), near), far);
    for (long k = 0; k < walk->tiles; k++) {
        V *z = trial_rows(trial, k), *rates = trial_rates(trial, k), change[entries];
        combine(z + entries, z, rates, &one, 1, copysign(h0, span), entries);
        evaluate_stage(trial, k, 1, (REAL)probed);
        for (long q = 0; q < entries; q++) change[q] = rates[entries + q] - rates[q];
        d2 += squares(trial, k, change, z, z);
    }
    d2 = rms(trial, d2) / h0;
    double largest = fmax(d1, d2), order = walk->order; /* one more than the embedded solution's */
    double h1 = largest < 1e-15 ? fmax(1e-6, 1e-3 * h0) : pow(0.01 / largest, 1 / order);
    return isfinite(d2) ? fmin(fmin(100 * h0, h1), fabs(span)) : NAN;
}

/* Try a step; the error over the tolerance, where steps are chosen. The end of the step is the row after the stages'. */
static double tried(Trial *trial, int first_is_known) {
    const Walk *walk = trial->walk;
    long entries = entries_of(walk), all = walk->evaluated, count = walk->choice ? all : walk->stages;
    const double *b = walk->tableau + all * all, *error_weights = b + all;
    double sum = 0;
    if (walk->adjoint) clear_share(trial, PENDING);
    if (trial->reuse) clear_share(trial, LAST);
    if (trial->reuse && !first_is_known) clear_share(trial, FIRST);
    for (long k = 0; k < walk->tiles; k++) {
        V *rows = trial_rows(trial, k), *end = rows + walk->stages * entries, *rates = trial_rates(trial, k);
        V error[entries];
        if (!first_is_known) evaluate_stage(trial, k, 0, (REAL)trial->t);
        for (long i = 1; i < count; i++) {
            combine(rows + i * entries, rows, rates, walk->tableau + i * all, i, trial->h, entries);
            evaluate_stage(trial, k, i, stage_time(walk, i, trial->t, trial->reached));
        }
        if (count == walk->stages) combine(end, rows, rates, b, count, trial->h, entries);
        if (!walk->choice) continue;
        combine(error, 0, rates, error_weights, all, trial->h, entries);
        sum += squares(trial, k, error, rows, end);
    }
    return rms(trial, sum);
}

/* Go on from the end of the step; FSAL takes over the last rate, too. */
static void accept(Trial *trial) {
    const Walk *walk = trial->walk;
    long entries = entries_of(walk);
    for (long k = 0; k < walk->tiles; k++) {
        V *rows = trial_rows(trial, k), *rates = trial_rates(trial, k);
        if (!walk->keep) memcpy(rows, rows + walk->stages * entries, entries * sizeof(V));
        memcpy(rates, rates + (walk->evaluated - 1) * entries, entries * sizeof(V));
    }
    if (walk->adjoint) add_share(trial, PENDING, 1);
    if (trial->reuse) {
        add_share(trial, FIRST, (REAL)(trial->h * walk->tableau[walk->evaluated * walk->evaluated]));
        memcpy(trial_share(trial, FIRST), trial_share(trial, LAST), share_size(walk) * sizeof(REAL));
    }
    trial->step += walk->keep;
}

static void begin(const Trial *trial) {
    const Walk *walk = trial->walk;
    for (long k = 0; k < walk->tiles; k++) {
        long tile = trial->member * walk->tiles + k;
        load(walk, tile, walk->start, trial_rows(trial, k), 0);
        if (walk->adjoint) load(walk, tile, walk->on_end, trial_rows(trial, k) + walk->points, 1);
    }
    if (walk->adjoint) clear_share(trial, ACCEPTED);
    if (trial->reuse) clear_share(trial, FIRST);
}

/* Store the state, as that at a time asked for. */
static void land(const Trial *trial, long at) {
    const Walk *walk = trial->walk;
    for (long k = 0; k < walk->tiles; k++)
        store(walk, trial->member * walk->tiles + k, trial_rows(trial, k), walk->end + output(walk, at));
}

/* Keep the state before step n, for a way back that evaluates the rest again. */
static void checkpoint(const Trial *trial, long n) {
    const Walk *walk = trial->walk;
    for (long k = 0; k < walk->tiles; k++)
        memcpy(start_of(walk, trial->member * walk->tiles + k, n), trial_rows(trial, k), walk->points * sizeof(V));
}

/* Store the state at a time within the step that was tried. */
static void pass(const Trial *trial, long at) {
    const Walk *walk = trial->walk;
    double weights[walk->evaluated];
    V state[walk->points];
    dense_weights(walk, trial->t, trial->reached, walk->inner_times[at], weights);
    for (long k = 0; k < walk->tiles; k++) {
        combine(state, trial_rows(trial, k), trial_rates(trial, k), weights, walk->evaluated, 1, walk->points);
        store(walk, trial->member * walk->tiles + k, state, walk->end + output(walk, at));
    }
}

static void finish(const Trial *trial) {
    const Walk *walk = trial->walk;
    land(trial, walk->inner);
    for (long k = 0; k < walk->tiles; k++) {
        long tile = trial->member * walk->tiles + k;
        if (walk->adjoint) store(walk, tile, trial_rows(trial, k) + walk->points, walk->on_start);
    }
}

/* An adjoint's way back over a known grid. */
static void member_walked(const Walk *walk, long member) {
    Trial trial = {walk, field_of(walk, member), member, 0, 0, 0, 0, 0};
    const double *sizes = sizes_of(walk, member), *nodes = nodes_of(walk, member);
    begin(&trial);
    for (long n = 0; n < steps_of(walk, member); n++) {
        trial.t = nodes[n], trial.reached = nodes[n + 1], trial.h = sizes[n];
        tried(&trial, 0);
        accept(&trial);
    }
    finish(&trial);
}

static void member_adapted(const Walk *walk, long member) {
    const int reuse = walk->adjoint && walk->reuse, keeps = walk->keep || walk->checkpoint;
    Trial trial = {walk, field_of(walk, member), member, 0, walk->begin, walk->begin, 0, reuse};
    long fsal = walk->evaluated > walk->stages, reuses = reuse || !walk->adjoint, known = reuses, taken = 0, next = 0;
    const double sign = walk->finish > walk->begin ? 1 : -1;
    double *sizes = walk->sizes + member * walk->room, *nodes = walk->nodes + member * (walk->room + 1);
    begin(&trial);
    double h = first_step(&trial);
    walk->evaluations[member] = 2, walk->rejected[member] = 0, walk->status[member] = TROUBLE;
    if (!isfinite(h)) return;
    nodes[0] = trial.t;
    while (trial.t != walk->finish) {
        const double to = !walk->dense && next < walk->inner ? walk->inner_times[next] : walk->finish;
        double left = fabs(to - trial.t), length = h >= left * (1 - 1e-10) ? left : h;
        trial.h = copysign(length, to - trial.t);
        trial.reached = length == left ? to : trial.t + trial.h;
        double ratio = tried(&trial, known);
        walk->evaluations[member] += walk->evaluated - known;
        if (!isfinite(ratio)) return;
        int accepted = ratio <= 1;
        double factor = walk->safety / pow(ratio, 1 / walk->order);
        double proposal = length * fmin(fmax(factor, ratio < 1 ? 1 : walk->most_shrinking), walk->most_growth);
        h = accepted ? fmax(proposal, h) : proposal;
        if (accepted) {
            for (; walk->dense && next < walk->inner && sign * (walk->inner_times[next] - trial.reached) <= 0; next++) {
                walk->inner_steps[next] = taken;
                pass(&trial, next);
            }
            if (walk->checkpoint) checkpoint(&trial, taken);
            if (keeps) sizes[taken] = trial.h, nodes[taken + 1] = trial.reached;
            accept(&trial);
            trial.t = trial.reached;
            taken++;
            if (!walk->dense && next < walk->inner && trial.t == to) {
                walk->inner_steps[next] = taken;
                land(&trial, next++);
            }
        } else walk->rejected[member]++;
        known = reuses && (fsal || !accepted);
        if (!accepted && h < walk->smallest) return;
        if (trial.t != walk->finish && taken + walk->rejected[member] >= walk->budget) return;
        if (trial.t != walk->finish && keeps && taken == walk->room) {
            walk->status[member] = FULL;
            return;
        }
    }
    if (walk->checkpoint) checkpoint(&trial, taken);
    walk->steps[member] = taken;
    walk->status[member] = DONE;
    finish(&trial);
}
