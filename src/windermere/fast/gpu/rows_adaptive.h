/* A solve with steps chosen from the estimated error of the whole batch: what solvers/adaptive.py does, for one group.

All blocks add up all tiles' sums in the same order, and so take the same decisions. Whatever is out of the ordinary
(values that are not finite, steps that vanish, a budget that is spent) is TROUBLE: then the next path does it all
again, and at last Python says what is wrong. With the adjoint, a tile's state is z and its cotangent a, going backwards
in time: da/dt = -a^T df/dz, and the weights' gradients are a sum over accepted steps of -h b_i a^T df/dp. A first stage
that is known from the step before has its share of these from there, too, kept as it is for b_0 h = -1: how long the next
step will be, nobody knows then. */

enum { DONE, FULL, TROUBLE };

/* A tile's shares of an adjoint's gradients: of accepted steps, of the trial's stages but the first and a last one that
   is the next step's first, and of the first. What is being evaluated adds to chip.share. */
enum { ACCEPTED, PENDING, FIRST, SHARES };

struct Trial {
    double t, reached, h;
    int step, round; /* steps accepted so far; sums over all tiles so far */
};

FN double sum_of_lanes(double x) {
    for (int n = 1; n < LANES; n *= 2) x += SHUFFLED(x, n);
    return x;
}

/* The sums of two numbers over all threads of all blocks, always in the same order. */
FN void add_up_all(const Walk &walk, const Chip &chip, Trial &trial, double &one, double &other) {
    const int warp = THREAD / LANES, lane = THREAD % LANES, warps = THREADS / LANES;
    double *mine = walk.sums + (trial.round & 1) * 2 * walk.tiles;
    one = sum_of_lanes(one), other = sum_of_lanes(other);
    if (lane == 0) chip.scratch[warp] = one, chip.scratch[warps + warp] = other;
    WAIT();
    if (THREAD == 0) {
        one = other = 0;
        for (int k = 0; k < warps; k++) one += chip.scratch[k], other += chip.scratch[warps + k];
        mine[TILE] = one, mine[walk.tiles + TILE] = other;
    }
    trial.round++;
    WAIT_FOR_ALL(walk, trial.round);
    if (THREAD < LANES) {
        one = other = 0;
        for (int k = lane; k < walk.tiles; k += LANES)
            one += FRESH(mine[k]), other += FRESH(mine[walk.tiles + k]);
        one = sum_of_lanes(one), other = sum_of_lanes(other);
        if (THREAD == 0) chip.scratch[0] = one, chip.scratch[1] = other;
    }
    WAIT();
    one = chip.scratch[0], other = chip.scratch[1];
    WAIT();
}

/* Infinite where REAL has no such number, as in Python. */
FN double rms(const Walk &walk, double squares) {
    return sqrt((double)(REAL)squares / ((double)walk.samples * walk.entries));
}

/* The square of value / (atol + rtol |z|), where |z| is the larger of two. */
FN double square_of(const Walk &walk, int e, REAL value, REAL z, REAL other) {
    if (TILE * ROWS + e % ROWS >= walk.samples) return 0;
    const REAL size = fabs(z) > fabs(other) ? fabs(z) : fabs(other);
    const double ratio = value / ((REAL)walk.atol + (REAL)walk.rtol * size);
    return ratio * ratio;
}

/* Where number e of a state lies in a row. */
FN int spot(const Walk &walk, int e) { return e < walk.points * ROWS ? e : e + ROWS; }

FN int is_fsal(const Walk &walk) { return walk.evaluated > walk.stages; }

FN REAL *tile_share(const Walk &walk, int which) {
    return walk.share_of_tiles + ((long long)which * walk.tiles + TILE) * walk.shares;
}

/* What was added to the gradients so far is one of the tile's shares; what follows begins anew. */
FN void put_aside(const Walk &walk, const Chip &chip, int which) {
    REAL *to = tile_share(walk, which);
    WAIT();
    for (int e = THREAD; e < walk.shares; e += THREADS) to[e] = chip.share[e], chip.share[e] = 0;
}

/* How much of a stage's share is added. */
FN double much_of(const Walk &walk, const Chip &chip, const Trial &trial, int i) {
    if (is_fsal(walk) && i == walk.evaluated - 1) return trial.reached == walk.finish ? 0 : -1; /* the last step's: none */
    return i ? -trial.h * chip.tableau[walk.evaluated * walk.evaluated + i] : -1;
}

/* The rate at stage i of the row on chip, at a time. */
APART void evaluate_stage(const Walk &walk, const Chip &chip, const Trial &trial, int i, REAL t) {
    const int half = walk.points * ROWS, size = walk.entries * ROWS, rate = walk.at_rates + i * size;
    set_clock(walk, chip, t);
    WAIT();
    evaluate(walk, rate);
    if (!walk.adjoint) return;
    pull_back(walk, walk.at_row + half + ROWS, (REAL)much_of(walk, chip, trial, i));
    for (int e = THREAD; e < size; e += THREADS)
        if (e >= half) chip.rates[i * size + e] = -chip.on[e - half];
}

/* The first step (initial_step.py), or one that is not a number where something is wrong: two evaluations. */
FN double first_step(const Walk &walk, const Chip &chip, Trial &trial) {
    const int size = walk.entries * ROWS;
    const double span = walk.finish - walk.begin;
    REAL *z = chip.z, *row = chip.row, *rates = chip.rates;
    double d0 = 0, d1 = 0, d2 = 0, none = 0;
    for (int e = THREAD; e < size; e += THREADS) row[spot(walk, e)] = z[e];
    evaluate_stage(walk, chip, trial, 0, (REAL)walk.begin);
    for (int e = THREAD; e < size; e += THREADS)
        d0 += square_of(walk, e, z[e], z[e], z[e]), d1 += square_of(walk, e, rates[e], z[e], z[e]);
    add_up_all(walk, chip, trial, d0, d1);
    d0 = rms(walk, d0), d1 = rms(walk, d1);
    if (walk.adjoint) put_aside(walk, chip, FIRST);
    if (!isfinite(d0) || !isfinite(d1) || walk.rounding * d0 > 0.5) return NAN;
    const double h0 = fmin(d0 < 1e-5 || d1 < 1e-5 ? 1e-6 : 0.01 * d0 / d1, fabs(span)), signed_h0 = copysign(h0, span);
    const double far = fmax(walk.begin, walk.finish), near = fmin(walk.begin, walk.finish);
    for (int e = THREAD; e < size; e += THREADS) row[spot(walk, e)] = z[e] + (REAL)signed_h0 * rates[e];
    evaluate_stage(walk, chip, trial, 1, (REAL)fmin(fmax(walk.begin + signed_h0, near), far));
    for (int e = THREAD; e < size; e += THREADS) d2 += square_of(walk, e, rates[size + e] - rates[e], z[e], z[e]);
    add_up_all(walk, chip, trial, d2, none);
    d2 = rms(walk, d2) / h0;
    const double largest = fmax(d1, d2); /* order: one more than the embedded solution's */
    const double h1 = largest < 1e-15 ? fmax(1e-6, 1e-3 * h0) : pow(0.01 / largest, 1 / walk.order);
    return isfinite(d2) ? fmin(fmin(100 * h0, h1), fabs(span)) : NAN;
}

/* Try a step, which ends in the row on chip; the error over the tolerance. */
FN double tried(const Walk &walk, const Chip &chip, Trial &trial, int first_is_known) {
    const int size = walk.entries * ROWS, all = walk.evaluated;
    const double *b = chip.tableau + all * all, *error_weights = b + all;
    REAL *z = chip.z, *row = chip.row, *rates = chip.rates;
    double sum = 0, none = 0;
    if (walk.adjoint)
        for (int e = THREAD; e < walk.shares; e += THREADS) chip.share[e] = 0;
    if (walk.keep)
        for (int e = THREAD; e < size; e += THREADS) kept_row(walk, trial.step * walk.stages)[e] = z[e];
    for (int i = first_is_known; i < all; i++) {
        if (walk.adjoint && i == 1 && !first_is_known) put_aside(walk, chip, FIRST);
        if (walk.adjoint && i == all - 1 && is_fsal(walk)) put_aside(walk, chip, PENDING);
        for (int e = THREAD; e < size; e += THREADS) {
            row[spot(walk, e)] = combined(rates, size, chip.tableau + i * all, i, trial.h, e, z[e]);
            if (walk.keep && i < walk.stages) kept_row(walk, trial.step * walk.stages + i)[e] = row[spot(walk, e)];
        }
        evaluate_stage(walk, chip, trial, i, stage_time(walk, chip, i, trial.t, trial.reached));
    }
    for (int e = THREAD; e < size; e += THREADS) {
        if (all == walk.stages) row[spot(walk, e)] = combined(rates, size, b, all, trial.h, e, z[e]);
        const REAL error = combined(rates, size, error_weights, all, trial.h, e, 0);
        sum += square_of(walk, e, error, z[e], row[spot(walk, e)]);
    }
    add_up_all(walk, chip, trial, sum, none);
    return rms(walk, sum);
}

/* Store the states at the times asked for from `first` on, which lie within the step that was tried. */
FN void pass(const Walk &walk, const Chip &chip, const Trial &trial, int first, int end) {
    const int size = walk.points * ROWS;
    const REAL *z = chip.z, *rates = chip.rates;
    for (int n = THREAD; n < (end - first) * size; n += THREADS) {
        const int k = first + n / size, e = n % size;
        REAL state = z[e];
        for (int i = 0; i < walk.evaluated; i++)
            state += (REAL)dense_weight(walk, chip, trial.t, trial.reached, walk.inner_times[k], i) * rates[i * size + e];
        store(walk, output(walk, walk.end, k), e, state);
    }
    WAIT();
}

/* Go on from the end of the step; FSAL takes over the last rate, too. */
FN void accept(const Walk &walk, const Chip &chip, Trial &trial) {
    const int size = walk.entries * ROWS;
    REAL *z = chip.z, *rates = chip.rates;
    for (int e = THREAD; e < size; e += THREADS) {
        z[e] = chip.row[spot(walk, e)];
        rates[e] = rates[(walk.evaluated - 1) * size + e];
    }
    REAL *total = tile_share(walk, ACCEPTED), *pending = tile_share(walk, PENDING), *first = tile_share(walk, FIRST);
    const REAL first_much = (REAL)(trial.h * chip.tableau[walk.evaluated * walk.evaluated]);
    for (int e = THREAD; walk.adjoint && e < walk.shares; e += THREADS) {
        total[e] += first_much * first[e] + (is_fsal(walk) ? pending[e] : chip.share[e]);
        if (is_fsal(walk)) first[e] = chip.share[e];
    }
    trial.step++, trial.t = trial.reached;
}

FN void begin(const Walk &walk, const Chip &chip) {
    const int half = walk.points * ROWS;
    REAL *z = chip.z;
    for (int e = THREAD; e < walk.entries * ROWS; e += THREADS)
        z[e] = e < half ? loaded(walk, walk.start, e, 0) : loaded(walk, walk.on_end, e - half, 1);
    for (int e = THREAD; walk.adjoint && e < walk.shares; e += THREADS)
        tile_share(walk, ACCEPTED)[e] = chip.share[e] = 0;
}

FN void land(const Walk &walk, const Chip &chip, int k) {
    for (int e = THREAD; e < walk.points * ROWS; e += THREADS)
        store(walk, output(walk, walk.end, k), e, chip.z[e]);
}

FN void finish(const Walk &walk, const Chip &chip, const Trial &trial) {
    const int half = walk.points * ROWS;
    const REAL *z = chip.z;
    land(walk, chip, walk.inner);
    for (int e = THREAD; walk.keep && e < half; e += THREADS) kept_row(walk, trial.step * walk.stages)[e] = z[e];
    for (int e = THREAD; walk.adjoint && e < 2 * half; e += THREADS)
        if (e >= half) store(walk, walk.on_start, e - half, z[e]);
}

/* The steps of all tiles; how that ended. */
FN int walk_adaptively(const Walk &walk, const Chip &chip, Trial &trial, int &evaluations, int &rejected) {
    const int writes = TILE == 0 && THREAD == 0;
    const double sign = walk.finish > walk.begin ? 1 : -1;
    int known = 1, next = 0;
    begin(walk, chip);
    double h = first_step(walk, chip, trial);
    evaluations = 2;
    if (!isfinite(h)) return TROUBLE;
    if (writes) walk.nodes[0] = trial.t;
    while (trial.t != walk.finish) {
        const double to = walk.landed && next < walk.inner ? walk.inner_times[next] : walk.finish;
        const double left = fabs(to - trial.t), length = h >= left * (1 - 1e-10) ? left : h;
        trial.h = copysign(length, to - trial.t);
        trial.reached = length == left ? to : trial.t + trial.h;
        const double ratio = tried(walk, chip, trial, known);
        evaluations += walk.evaluated - known;
        if (!isfinite(ratio)) return TROUBLE;
        const int accepted = ratio <= 1;
        const double factor = walk.safety / pow(ratio, 1 / walk.order);
        const double proposal = length * fmin(fmax(factor, ratio < 1 ? 1 : walk.most_shrinking), walk.most_growth);
        h = accepted ? fmax(proposal, h) : proposal;
        if (accepted) {
            const int first = next;
            for (; !walk.landed && next < walk.inner && sign * (walk.inner_times[next] - trial.reached) <= 0; next++)
                if (writes) walk.inner_steps[next] = trial.step;
            if (next > first) pass(walk, chip, trial, first, next);
            if (walk.keep && writes) walk.sizes[trial.step] = trial.h, walk.nodes[trial.step + 1] = trial.reached;
            accept(walk, chip, trial);
            if (walk.landed && next < walk.inner && trial.t == to) {
                if (writes) walk.inner_steps[next] = trial.step;
                land(walk, chip, next++);
            }
        } else rejected++;
        known = is_fsal(walk) || !accepted;
        if (!accepted && h < walk.smallest) return TROUBLE;
        if (trial.t != walk.finish && trial.step + rejected >= walk.budget) return TROUBLE;
        if (trial.t != walk.finish && walk.keep && trial.step == walk.room) return FULL;
    }
    finish(walk, chip, trial);
    return DONE;
}
