/* A row program and its derivative on a tile, there and back: the lists of instructions that plan.py makes.

A block of threads has a tile of ROWS samples. A value of so many columns is [columns][ROWS] on chip, in shared memory;
a row of an external tensor, or of constants, is [columns], the same for all samples. Where an operand lies is an
*address*: a place on chip, or one in the rate of a stage. All threads share the work of an instruction; `wait` says after which
ones they wait for each other, as the next would read or write what another thread has. */

enum { LINEAR, UNARY, NOTED, DERIVED, SCALED, SUM, QUOTIENT, GATE, OUTER, ABOVE, AT_LEAST };
enum { A_HAS_ROWS = 1, B_HAS_ROWS = 2, HAS_B = 4, ADDS = 8, IS_SHARED = 16, IS_DERIVED = 32, IS_NOTED = 64 };

struct Op {
    int code, kind, n, in;
    int to, a, b, noted;             /* addresses */
    int by_to, by_a, by_b, matrix;   /* from column to column; where a matrix lies */
    int split, line, flags, wait;    /* the logarithm of how many threads share an output, or a row of
                                        a gradient; from one row of a matrix to the next */
    double x, y;
};

/* Where a part of an external tensor lies among the layers: a row (out = 0), or a matrix. */
struct Block {
    int external, offset, in, out, by_in, by_out, place, line;
};

struct alignas(ROWS * sizeof(REAL) < 16 ? ROWS * sizeof(REAL) : 16) Samples {
    REAL of[ROWS];
};

FN REAL *numbers_from(int place) {
    MEMORY
    return (REAL *)memory + place;
}

/* Twice a place on chip; or in a rate, and 1. */
FN REAL *at(int rate, int address) { return numbers_from((address >> 1) + (address & 1) * rate); }

FN REAL sum_of_lanes(REAL x, int from) {
    for (int n = from; n < LANES; n *= 2) x += SHUFFLED(x, n);
    return x;
}

/* One operand's number in a column and of a sample. */
FN REAL number_at(const REAL *place, int by, int has_rows, int i, int r) { return place[i * by + (has_rows ? r : 0)]; }

/* Add every `by`-th of a column's weights times what is given, from one on; four at a time, by hand, as a compiler would
   divide to know how often. */
FN void add_products(REAL *sums, int column, int line, const REAL *x, int first, int end, int by) {
    const REAL *weights = numbers_from(column);
    const Samples *given = (const Samples *)x;
    int i = first;
    for (; i + 3 * by < end; i += 4 * by) {
        REAL weight[4];
        Samples some[4];
        for (int k = 0; k < 4; k++) weight[k] = weights[(i + k * by) * line], some[k] = given[i + k * by];
        for (int k = 0; k < 4; k++)
            for (int r = 0; r < ROWS; r++) sums[r] += weight[k] * some[k].of[r];
    }
    for (; i < end; i += by)
        for (int r = 0; r < ROWS; r++) sums[r] += weights[i * line] * given[i].of[r];
}

/* A product with a matrix, plus a bias; perhaps a function of that, or the way back through one. Some threads of a warp
   share an output, each with some of the inputs. */
FN void multiply(int rate, const Op &op) {
    const int shift = LOG_LANES - op.split, width = 1 << shift, lane = THREAD & (LANES - 1), part = lane >> shift;
    const int own = lane & (width - 1);
    const REAL *x = at(rate, op.a), *b = at(rate, op.b);
    REAL *to = at(rate, op.to), *noted = at(rate, op.noted);
    for (int first = THREAD / LANES << shift; first < op.n; first += THREADS / LANES << shift) {
        const int unit = first + own, within = unit < op.n;
        REAL sums[ROWS] = {0};
        if (within && op.flags & A_HAS_ROWS) add_products(sums, op.matrix + unit, op.line, x, part, op.in, 1 << op.split);
        else if (within)
            for (int i = part; i < op.in; i += 1 << op.split)
                for (int r = 0; r < ROWS; r++) sums[r] += numbers_from(op.matrix + unit)[i * op.line] * x[i];
        for (int r = 0; r < ROWS; r++) {
            REAL y = sum_of_lanes(sums[r], width);
            if (!within || (r & ((1 << op.split) - 1)) != part) continue;
            if (op.flags & HAS_B && !(op.flags & IS_DERIVED)) y += number_at(b, op.by_b, op.flags & B_HAS_ROWS, unit, r);
            if (op.flags & IS_NOTED) noted[unit * ROWS + r] = slope_at(y, op.kind, (REAL)op.x);
            if (op.flags & IS_DERIVED) y = through(y, b[unit * ROWS + r], op.kind, (REAL)op.x);
            else if (op.kind != NO_FUNCTION) y = value_of(y, op.kind, (REAL)op.x);
            to[unit * ROWS + r] = y;
        }
    }
}

/* Add the gradient of a matrix [in][out], from what it was multiplied with and the cotangent of the product; perhaps
   also that of a bias. */
FN void add_outer(int rate, const Op &op, REAL scale) {
    const REAL *x = at(rate, op.a), *on = at(rate, op.b);
    REAL *to = at(rate, op.to), *bias = at(rate, op.noted);
    const int across = 1 << op.split; /* threads for one row of the matrix */
    for (int o = THREAD & (across - 1); o < op.n; o += across) {
        Samples given = ((const Samples *)on)[o];
        REAL total = 0;
        for (int r = 0; r < ROWS; r++) given.of[r] *= scale, total += given.of[r];
        if (op.flags & IS_NOTED && THREAD < across) bias[o] += total;
        int i = THREAD >> op.split;
        const int by = THREADS >> op.split;
        for (; i + 3 * by < op.in; i += 4 * by) {
            REAL some[4];
            for (int k = 0; k < 4; k++) some[k] = to[(i + k * by) * op.n + o];
            for (int k = 0; k < 4; k++)
                for (int r = 0; r < ROWS; r++)
                    some[k] += number_at(x, op.by_a, op.flags & A_HAS_ROWS, i + k * by, r) * given.of[r];
            for (int k = 0; k < 4; k++) to[(i + k * by) * op.n + o] = some[k];
        }
        for (; i < op.in; i += by)
            for (int r = 0; r < ROWS; r++)
                to[i * op.n + o] += number_at(x, op.by_a, op.flags & A_HAS_ROWS, i, r) * given.of[r];
    }
}

/* x a b, or without b x a */
FN REAL product_at(const Op &op, const REAL *a, const REAL *b, int i, int r) {
    const REAL x = (REAL)op.x * number_at(a, op.by_a, op.flags & A_HAS_ROWS, i, r);
    return op.flags & HAS_B ? x * number_at(b, op.by_b, op.flags & B_HAS_ROWS, i, r) : x;
}

/* What is done to each number of a row. */
FN REAL result_at(const Op &op, const REAL *a, const REAL *b, int i, int r) {
    if (op.code == SCALED) return product_at(op, a, b, i, r);
    const REAL given = number_at(a, op.by_a, op.flags & A_HAS_ROWS, i, r), x = (REAL)op.x;
    if (op.code == UNARY || op.code == NOTED) return value_of(given, op.kind, x);
    const REAL other = number_at(b, op.by_b, op.flags & B_HAS_ROWS, i, r);
    switch (op.code) {
        case DERIVED: return through(given, other, op.kind, x);
        case SUM: return x * given + (REAL)op.y * other;
        case QUOTIENT: return given / other;
        case ABOVE: return given > other ? (REAL)1 : (REAL)0;
        case AT_LEAST: return given >= other ? (REAL)1 : (REAL)0;
    }
    return other <= 0 ? (REAL)0 : given; /* GATE */
}

FN void apply(int rate, const Op &op) {
    const REAL *a = at(rate, op.a), *b = at(rate, op.b);
    REAL *to = at(rate, op.to), *noted = at(rate, op.noted);
    for (int e = THREAD; e < op.n * ROWS; e += THREADS) {
        const int i = e / ROWS, r = e % ROWS;
        const REAL given = op.flags & IS_NOTED ? number_at(a, op.by_a, op.flags & A_HAS_ROWS, i, r) : (REAL)0;
        const REAL found = result_at(op, a, b, i, r);
        if (op.flags & IS_NOTED) noted[e] = slope_at(given, op.kind, (REAL)op.x);
        to[e] = op.flags & ADDS ? to[e] + found : found;
    }
}

/* The sum of a row's numbers, for each sample. */
FN void add_up(int rate, const Op &op) {
    const REAL *a = at(rate, op.a), *b = at(rate, op.b);
    REAL *to = at(rate, op.to);
    for (int r = THREAD / LANES; r < ROWS; r += THREADS / LANES) {
        REAL sum = 0;
        for (int i = THREAD % LANES; i < op.n; i += LANES) sum += product_at(op, a, b, i, r);
        sum = sum_of_lanes(sum, 1);
        if (THREAD % LANES == 0) to[r] = op.flags & ADDS ? to[r] + sum : sum;
    }
}

/* Add to the gradient of an external row: sums over samples, or where it is one number over all. */
FN void add_share(int rate, const Op &op, REAL scale) {
    const REAL *a = at(rate, op.a), *b = at(rate, op.b);
    REAL *to = at(rate, op.to), sum = 0;
    if (op.by_to) {
        for (int i = THREAD; i < op.n; i += THREADS) {
            sum = 0;
            for (int r = 0; r < ROWS; r++) sum += product_at(op, a, b, i, r);
            to[i] += scale * sum;
        }
    } else if (THREAD < LANES) {
        for (int e = THREAD; e < op.n * ROWS; e += LANES) sum += product_at(op, a, b, e / ROWS, e % ROWS);
        sum = sum_of_lanes(sum, 1);
        if (THREAD == 0) *to += scale * sum;
    }
}

/* Instructions one after the other; those that add to gradients are scaled, or left out where nobody asks. */
APART void run(int rate, int first, int end, REAL share, int graded) {
    for (int k = first; k < end; k++) {
        const Op own = *(const Op *)numbers_from(k * (sizeof(Op) / sizeof(REAL)));
        if (own.flags & IS_SHARED) {
            if (!graded) { /* nobody asks */ }
            else if (own.code == OUTER) add_outer(rate, own, share);
            else add_share(rate, own, share);
        } else if (own.code == LINEAR) multiply(rate, own);
        else if (!own.by_to) add_up(rate, own);
        else apply(rate, own);
        if (own.wait) WAIT();
    }
}
