/* A row program (program.py) and its derivative on a tile, there and back: see native.c and rows.py.

A value is [width] vectors of samples. Operations are few, and both ways are lists of them: the way there leaves in its
notes what the way back reads. Where a value lies is an *address*: a space, and how many vectors after its beginning.
Weights are laid out in the order in which products read them.

The gradient of a weight is a sum over samples, and these lie within vectors. So the longer side of each matrix is
transposed, to have its units in a vector and samples one after the other. */

#define OWN_STEPS /* samples may have steps of their own: native_samples.h */
#define AT_ONCE (BYTES == 64 ? 16 : 8) /* units: their sums stay in registers */

enum { NOTES, WORK, ROW, TIME, LAYERS, RATE, ON_Z, SHARE, SPACES };
enum { LINEAR, UNARY, NOTED, DERIVED, SCALED, SUM, QUOTIENT, GATE, OUTER, ABOVE, AT_LEAST };

/* What is the same for all tiles and stages. */
typedef struct {
    const Instruction *ops;
    REAL *layers;
} Field;

typedef struct {
    REAL *share;
} Gradient;

static long layers_size(const Walk *walk) { return walk->laid; }
static long notes_size(const Walk *walk) { return walk->noted; }
static long share_size(const Walk *walk) { return walk->shared_out; }
static long work_size(const Walk *walk) { return walk->working; }

static Field field_of(const Walk *walk, long member) {
    return (Field){walk->ops, walk->layers + member * walk->laid};
}

static Gradient gradient_in(const Walk *walk, REAL *share) { return (Gradient){share}; }

static long up(long n, long to) { return (n + to - 1) / to * to; }

static long larger(long a, long b) { return a > b ? a : b; }

/* How many units from the n-th on are taken at once. */
INLINE long taken(long n, long of) {
    long left = of - n;
    return left >= AT_ONCE ? AT_ONCE : left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* The external tensors as they were when the solve began: they may change before the way back. A matrix lies with
   AT_ONCE of its outputs after the other; a row of numbers is spread over vectors. */
static void lay(const Walk *walk, long member) {
    REAL *layers = walk->layers + member * walk->laid;
    for (long b = 0; b < walk->blocks; b++) {
        const Block *block = walk->block + b;
        REAL *to = layers + block->place;
        if (block->external < 0) {
            const double *from = walk->constants + block->offset;
            for (long i = 0; i < block->in; i++) *(V *)(to + i * LANES) = all((REAL)from[i]);
            continue;
        }
        const REAL *from = walk->weights[block->external] + block->offset;
        if (!block->out) {
            for (long i = 0; i < block->in; i++) *(V *)(to + i * LANES) = all(from[i]);
            continue;
        }
        for (long o = 0; o < block->out; o += taken(o, block->out))
            for (long i = 0; i < block->in; i++)
                for (long k = 0; k < taken(o, block->out); k++)
                    *to++ = from[(o + k) * block->by_out + i * block->by_in];
    }
}

/* A few rows of a product with a matrix; where they are fewer than AT_ONCE, sums are split, to be as many. */
INLINE void rows_times(V *to, const V *x, const REAL *matrix, const V *bias, long in, int rows) {
    const int parts = AT_ONCE / rows;
    V sums[AT_ONCE];
    for (int k = 0; k < AT_ONCE; k++) sums[k] = bias && k < rows ? bias[k] : (V){0};
    long i = 0;
    for (; i + parts <= in; i += parts)
        for (int k = 0; k < AT_ONCE; k++) sums[k] += matrix[i * rows + k] * x[i + k / rows];
    for (; i < in; i++)
        for (int k = 0; k < rows; k++) sums[k] += matrix[i * rows + k] * x[i];
    for (int n = AT_ONCE / 2; n >= rows; n /= 2)
        for (int k = 0; k < n; k++) sums[k] += sums[n + k];
    for (int k = 0; k < rows; k++) to[k] = sums[k];
}

static void product(V *to, const V *x, const REAL *matrix, const V *bias, long in, long out) {
    for (long o = 0; o < out; o += taken(o, out)) {
        const REAL *rows = matrix + o * in;
        const V *own = bias ? bias + o : 0;
        switch (taken(o, out)) {
            case 16: rows_times(to + o, x, rows, own, in, AT_ONCE); break;
            case 8: rows_times(to + o, x, rows, own, in, 8); break;
            case 4: rows_times(to + o, x, rows, own, in, 4); break;
            case 2: rows_times(to + o, x, rows, own, in, 2); break;
            default: rows_times(to + o, x, rows, own, in, 1);
        }
    }
}

/* Which function it is, is known where these are compiled: they are without branches. */
static void apply(const Instruction *op, V *to, const V *x) {
    const REAL number = (REAL)op->x;
    long n = op->n, step = op->a_step;
#define CASE(KIND) case KIND: for (long i = 0; i < n; i++) to[i] = value_of(x[i * step], KIND, number); break;
    switch (op->kind) { FOR_EACH_KIND(CASE) }
#undef CASE
}

static void apply_and_note(const Instruction *op, V *to, const V *x, V *derivative) {
    const REAL number = (REAL)op->x;
    long n = op->n, step = op->a_step;
#define CASE(KIND) \
    case KIND: \
        for (long i = 0; i < n; i++) to[i] = noted_value(x[i * step], KIND, number, derivative + i); \
        break;
    switch (op->kind) { FOR_EACH_KIND(CASE) }
#undef CASE
}

/* From the cotangent of a function's value y to that of what it was given. */
static void through(const Instruction *op, V *to, const V *on, const V *y) {
    const REAL number = (REAL)op->x;
    long n = op->n;
#define CASE(KIND) \
    case KIND: \
        for (long i = 0; i < n; i++) \
            if (KIND == RELU) to[i] = pick(y[i] <= 0, (V){0}, on[i]); /* also what is not finite */ \
            else to[i] = on[i] * derived(y[i], KIND, number); \
        break;
    switch (op->kind) { FOR_EACH_KIND(CASE) }
#undef CASE
}

/* to (+)= x a b, with or without b; where `to` has a step of 0, the sum of all. */
static void scaled(const Instruction *op, V *to, const V *a, const V *b, REAL x) {
    long n = op->n, by_a = op->a_step, by_b = op->b_step;
    if (!op->to_step) {
        V sum = op->add ? *to : (V){0};
        for (long i = 0; i < n; i++) sum += b ? x * a[i * by_a] * b[i * by_b] : x * a[i * by_a];
        *to = sum;
    } else if (op->add)
        for (long i = 0; i < n; i++) to[i] += b ? x * a[i * by_a] * b[i * by_b] : x * a[i * by_a];
    else
        for (long i = 0; i < n; i++) to[i] = b ? x * a[i * by_a] * b[i * by_b] : x * a[i * by_a];
}

/* The numbers of two vectors in turns: of their first halves, or of their second. */
INLINE V in_turns(V one, V other, int second) {
#ifdef __clang__
    V y;
    for (int s = 0; s < LANES; s++) y[s] = (s % 2 ? other : one)[(second * LANES + s) / 2];
    return y;
#else
    Mask which;
#pragma GCC unroll 16
    for (int s = 0; s < LANES; s++) which[s] = (second * LANES + s) / 2 + s % 2 * LANES;
    return __builtin_shuffle(one, other, which);
#endif
}

/* [LANES][LANES] to its transposed: each round moves the highest bit of a place to its lowest. In registers, where the
   loops are unrolled: through memory it takes more than twice as long. */
INLINE void transpose(const V *from, REAL *to, long step, REAL scale) {
    V x[LANES], next[LANES];
    for (int i = 0; i < LANES; i++) x[i] = from[i];
#pragma GCC unroll 4
    for (int n = 1; n < LANES; n *= 2) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) next[i] = in_turns(x[i / 2], x[i / 2 + LANES / 2], i % 2);
        for (int i = 0; i < LANES; i++) x[i] = next[i];
    }
    for (int s = 0; s < LANES; s++) *(V *)(to + s * step) = scale * x[s];
}

/* [n] vectors of samples to [LANES] samples of [n] units, scaled, and filled up to whole vectors. */
static void turn(const V *x, long n, REAL *to, REAL scale) {
    long step = up(n, LANES), whole = n / LANES * LANES;
    for (long i = 0; i < whole; i += LANES) transpose(x + i, to + i, step, scale);
    if (whole == n) return;
    V rest[LANES] = {{0}};
    memcpy(rest, x + whole, (n - whole) * sizeof(V));
    transpose(rest, to + whole, step, scale);
}

/* Of two vectors each, so that sums stay in registers: there are 32 of them, or 16. */
#define ROWS (BYTES == 64 ? 8 : 4)

/* Add the products of some units of one side with one or two vectors of the other's, of all samples. */
INLINE void outer_at(REAL *to, const V *x, const REAL *turned, long step, int rows, int vectors) {
    V sums[ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = v_at(to + r * step + v * LANES);
    for (int s = 0; s < LANES; s++) {
        V column[2];
        for (int v = 0; v < vectors; v++) column[v] = v_at(turned + s * step + v * LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) sums[r][v] += ((const REAL *)(x + r))[s] * column[v];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(V *)(to + r * step + v * LANES) = sums[r][v];
}

INLINE void add_some(REAL *to, const V *x, const REAL *turned, long step, int rows) {
    for (long v = 0; v < step;) {
        long some = v + LANES < step ? 2 : 1;
        if (some == 2) outer_at(to + v, x, turned + v, step, rows, 2);
        else outer_at(to + v, x, turned + v, step, rows, 1);
        v += some * LANES;
    }
}

static void add_outer(REAL *to, const V *x, long rows, const REAL *turned, long step) {
    long r = 0;
    for (; r + ROWS <= rows; r += ROWS) add_some(to + r * step, x + r, turned, step, ROWS);
    for (; r < rows; r++) add_some(to + r * step, x + r, turned, step, 1);
}

/* Add the gradient of a matrix [in][out], from what it was multiplied with and the cotangent of the product. In a share
   it lies as [shorter side][longer side]. */
static void outer(REAL *matrix, const V *x, const V *on, long in, long out, REAL scale) {
    long longer = larger(in, out), step = up(longer, LANES);
    V turned[step]; /* LANES times that many numbers */
    turn(in > out ? x : on, longer, (REAL *)turned, scale);
    add_outer(matrix, in > out ? on : x, in > out ? out : in, (const REAL *)turned, step);
}

/* Operations one after the other; those that add to gradients are scaled, or left out where nobody asks. */
static void run(const Instruction *op, const Instruction *end, V *const *spaces, REAL share, int graded, int noting) {
#define AT(address) (spaces[(address) & 7] + ((address) >> 3))
    for (; op < end; op++) {
        const int shared = (op->to & 7) == SHARE;
        if (shared && !graded) continue;
        V *to = AT(op->to);
        const V *a = AT(op->a), *b = op->b < 0 ? 0 : AT(op->b);
        const REAL x = (REAL)op->x, y = (REAL)op->y;
        long n = op->n, by_a = op->a_step, by_b = op->b_step;
        switch (op->code) {
            case LINEAR:
                product(to, a, (const REAL *)spaces[LAYERS] + op->matrix, b, op->in, n);
                break;
            case UNARY: apply(op, to, a); break;
            case NOTED:
                if (noting) apply_and_note(op, to, a, AT(op->matrix));
                else apply(op, to, a);
                break;
            case DERIVED: through(op, to, a, b); break;
            case SCALED: scaled(op, to, a, b, shared ? x * share : x); break;
            case SUM:
                for (long i = 0; i < n; i++) to[i] = x * a[i * by_a] + y * b[i * by_b];
                break;
            case QUOTIENT:
                for (long i = 0; i < n; i++) to[i] = a[i * by_a] / b[i * by_b];
                break;
            case GATE:
                for (long i = 0; i < n; i++) to[i] = pick(b[i * by_b] <= 0, (V){0}, a[i * by_a]);
                break;
            case ABOVE:
                for (long i = 0; i < n; i++) to[i] = pick(a[i * by_a] > b[i * by_b], all(1), (V){0});
                break;
            case AT_LEAST:
                for (long i = 0; i < n; i++) to[i] = pick(a[i * by_a] >= b[i * by_b], all(1), (V){0});
                break;
            case OUTER: outer((REAL *)to, a, b, op->in, n, share); break;
        }
    }
#undef AT
}

/* The rate of change of z at a time of each sample. */
static void evaluate(const Walk *walk, const Field *field, V time, const V *z, V *notes, V *work, V *rate) {
    V *spaces[SPACES] = {notes, work, (V *)z, &time, (V *)field->layers, rate};
    run(field->ops, field->ops + walk->there, spaces, 0, 0, walk->keep || walk->adjoint || walk->checkpoint);
}

/* From the cotangent of a rate to that of z. `share` times the weights' gradients are added up, unless `on` is null. */
static void pull_back(
    const Walk *walk, const Field *field, V time, const V *z, const V *notes, V *work, const V *on_rate, V *on_z,
    REAL share, const Gradient *on
) {
    V *spaces[SPACES] = {(V *)notes, work, (V *)z, &time, (V *)field->layers, (V *)on_rate, on_z, on ? (V *)on->share : 0};
    run(field->ops + walk->there, field->ops + walk->there + walk->back, spaces, share, on != 0, 0);
}

/* The sum of all shares, always in the same order, and the gradients from it, as PyTorch has the weights. */
static void sum_up(const Walk *walk, long member) {
    REAL *total = walk->shares + member * shares_of(walk) * walk->shared_out;
    for (long k = 1; k < shares_of(walk); k++)
        for (long e = 0; e < walk->shared_out; e++) total[e] += total[k * walk->shared_out + e];
    for (long b = walk->blocks; b < walk->blocks + walk->graded; b++) {
        const Block *block = walk->block + b;
        const REAL *from = total + block->place;
        REAL *to = walk->gradients[block->external] + block->offset;
        long in = block->in, out = block->out, step = up(larger(in, out), LANES);
        for (long i = 0; i < in && !out; i++)
            for (int s = 0; s < LANES; s++) to[i] += from[i * LANES + s];
        for (long i = 0; i < in && out; i++)
            for (long o = 0; o < out; o++)
                to[i * block->by_in + o * block->by_out] += in > out ? from[o * step + i] : from[i * step + o];
    }
}
