/* A tile over a grid of steps, and the way back of steps on a grid or chosen: number e is always the same thread's. */

FN void tile_there(const Walk &walk, const Chip &chip) {
    const int size = walk.points * ROWS, all = walk.evaluated, stages = walk.stages;
    const double *b = chip.tableau + all * all;
    REAL *z = chip.z, *row = chip.row, *rates = chip.rates;
    int next = 0;
    for (int e = THREAD; e < size; e += THREADS) z[e] = loaded(walk, walk.start, e, 0);
    for (int n = 0; n < walk.steps; n++) {
        const double h = walk.sizes[n], from = walk.nodes[n], to = walk.nodes[n + 1];
        for (int i = 0; i < stages; i++) {
            for (int e = THREAD; e < size; e += THREADS) {
                row[e] = combined(rates, size, chip.tableau + i * all, i, h, e, z[e]);
                if (walk.keep) kept_row(walk, n * stages + i)[e] = row[e];
            }
            set_clock(walk, chip, stage_time(walk, chip, i, from, to));
            WAIT();
            evaluate(walk, walk.at_rates + i * size);
        }
        for (int e = THREAD; e < size; e += THREADS) z[e] = combined(rates, size, b, stages, h, e, z[e]);
        for (; next < walk.inner && walk.inner_steps[next] == n + 1; next++)
            for (int e = THREAD; e < size; e += THREADS) store(walk, output(walk, walk.end, next), e, z[e]);
    }
    for (int e = THREAD; e < size; e += THREADS) store(walk, output(walk, walk.end, walk.inner), e, z[e]);
}

/* What cotangents of the states within a step add to those of its rates: all but the last one's, where that is the next
   step's first, or it alone; and to that of its start. `first` and `end` are the times asked for within the step. */
FN void add_dense(const Walk &walk, const Chip &chip, int step, int first, int end, REAL *on_rates, REAL *on_start, int last) {
    const int size = walk.points * ROWS, all = walk.evaluated;
    const double from = walk.nodes[step], to = walk.nodes[step + 1];
    for (int k = first; k < end; k++)
        for (int e = THREAD; e < size; e += THREADS) {
            const REAL on = loaded(walk, output(walk, walk.on_end, k), e, 1);
            for (int i = last ? all - 1 : 0; i < (last ? all : walk.stages); i++)
                on_rates[(last ? 0 : i) * size + e] +=
                    (REAL)dense_weight(walk, chip, from, to, walk.inner_times[k], i) * on;
            if (on_start) on_start[e] += on;
        }
}

/* The first of the times asked for that has at least so many steps before it. */
FN int first_after(const Walk &walk, int steps, int below) {
    while (below > 0 && walk.inner_steps[below - 1] >= steps) below--;
    return below;
}

/* Evaluate the row on chip again, and take the cotangent of its rate back to that of the row. */
FN void row_back(const Walk &walk, const Chip &chip, REAL t, int i) {
    set_clock(walk, chip, t);
    WAIT();
    const int size = walk.points * ROWS;
    evaluate(walk, walk.at_rates + walk.evaluated * size); /* a rate that nobody asks for */
    pull_back(walk, walk.at_rates + i * size, 1);
}

FN void tile_back(const Walk &walk, const Chip &chip) {
    const int size = walk.points * ROWS, all = walk.evaluated, stages = walk.stages, steps = walk.steps;
    const double *a = chip.tableau, *b = a + all * all;
    const int dense = !walk.landed && walk.inner, handed_on = dense && all > stages;
    REAL *z = chip.z, *row = chip.row, *on_row = chip.on, *on_rates = chip.rates;
    int past = walk.inner, own = dense ? first_after(walk, steps - 1, past) : past; /* times of a step: own <= k < past */
    for (int e = THREAD; e < walk.shares; e += THREADS) chip.share[e] = 0;
    for (int e = THREAD; e < size; e += THREADS) z[e] = loaded(walk, output(walk, walk.on_end, walk.inner), e, 1);
    if (handed_on) { /* the rate at the very end, which only states within the last step depend on */
        for (int e = THREAD; e < size; e += THREADS) row[e] = kept_row(walk, steps * stages)[e], on_rates[e] = 0;
        add_dense(walk, chip, steps - 1, own, past, on_rates, 0, 1);
        row_back(walk, chip, (REAL)walk.nodes[steps], 0);
        for (int e = THREAD; e < size; e += THREADS) z[e] += on_row[e];
    }
    REAL ahead = THREAD < size ? kept_row(walk, steps * stages - 1)[THREAD] : 0;
    for (int n = steps - 1; n >= 0; n--) {
        const double h = walk.sizes[n], from = walk.nodes[n], to = walk.nodes[n + 1];
        if (!dense)
            for (; past > 0 && walk.inner_steps[past - 1] == n + 1; past--)
                for (int e = THREAD; e < size; e += THREADS) z[e] += loaded(walk, output(walk, walk.on_end, past - 1), e, 1);
        for (int e = THREAD; e < size; e += THREADS)
            for (int i = 0; i < stages; i++) on_rates[i * size + e] = (REAL)(h * b[i]) * z[e];
        if (dense) {
            add_dense(walk, chip, n, own, past, on_rates, z, 0);
            past = own, own = n ? first_after(walk, n - 1, past) : 0;
            if (handed_on && n) add_dense(walk, chip, n - 1, own, past, on_rates, 0, 1);
        }
        for (int i = stages - 1; i >= 0; i--) {
            const int number = n * stages + i;
            for (int e = THREAD; e < size; e += THREADS) row[e] = e < THREADS ? ahead : kept_row(walk, number)[e];
            if (number && THREAD < size) ahead = kept_row(walk, number - 1)[THREAD];
            row_back(walk, chip, stage_time(walk, chip, i, from, to), i);
            for (int e = THREAD; e < size; e += THREADS) {
                z[e] += on_row[e];
                for (int j = 0; j < i; j++) on_rates[j * size + e] += (REAL)(h * a[i * all + j]) * on_row[e];
            }
        }
    }
    if (walk.on_start)
        for (int e = THREAD; e < size; e += THREADS) store(walk, walk.on_start, e, z[e]);
    WAIT();
    copy_numbers(walk.share_of_tiles + (long long)TILE * walk.shares, chip.share, walk.shares);
}
