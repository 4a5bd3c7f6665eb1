/* A network of linear layers, each with an activation after it, on a tile, there and back: see native.c.

The state is [points] vectors of samples, and so is the output of each layer: all of them are noted for the way back,
and after those of a SILU its derivatives. Weights are laid out in the order in which products read them, once as they
are and once transposed for the way back.

The gradient of a weight is a sum over samples, and these lie within vectors. So the longer side of each matrix is
transposed, to have its units in a vector and samples one after the other. */

#define DEPTH_UP_TO 16
#define AT_ONCE 8 /* units: their sums stay in registers */

enum { NONE, RELU, LEAKY_RELU, TANH, SIGMOID, SOFTPLUS, ELU, SILU };

typedef struct {
    long in, out, activation;
    REAL slope;             /* of a leaky relu */
    REAL *there, *back;     /* [out][in] and [in][out], AT_ONCE of the first side after the other */
    REAL *bias;             /* [out] */
    long notes, share;      /* where they begin */
} Layer;

typedef struct {
    long depth, widest;
    Layer layers[DEPTH_UP_TO];
    long size, notes, share; /* of all layers together */
} Field;

typedef struct {
    REAL *share;
} Gradient;

static long up(long n, long to) { return (n + to - 1) / to * to; }

static long larger(long a, long b) { return a > b ? a : b; }

/* A layer's matrix in a share: [shorter side][longer side]; its bias follows, each sample's apart. */
static long matrix_size(const Layer *layer) {
    return (layer->in < layer->out ? layer->in : layer->out) * up(larger(layer->in, layer->out), LANES);
}

static Field field_at(const Walk *walk, REAL *at) {
    Field field = {walk->depth, 0};
    for (long l = 0; l < walk->depth; l++) {
        Layer *layer = field.layers + l;
        long in = walk->units[l], out = walk->units[l + 1], kind = walk->activations[l];
        *layer = (Layer){in, out, kind, (REAL)walk->slopes[l], .notes = field.notes, .share = field.share};
        layer->there = at + field.size, layer->back = layer->there + in * out, layer->bias = layer->back + in * out;
        field.size += up(2 * in * out + out, LANES);
        field.notes += kind == SILU ? 2 * out : out;
        field.share += matrix_size(layer) + out * LANES;
        field.widest = larger(field.widest, larger(in, out));
    }
    return field;
}

static long layers_size(const Walk *walk) { return field_at(walk, 0).size; }
static long notes_size(const Walk *walk) { return field_at(walk, 0).notes; }
static long share_size(const Walk *walk) { return field_at(walk, 0).share; }

static Field field_of(const Walk *walk, long member) {
    return field_at(walk, walk->layers + member * layers_size(walk));
}

static Gradient gradient_in(const Walk *walk, REAL *share) { return (Gradient){share}; }

/* How many units from the n-th on are taken at once. */
INLINE long taken(long n, long of) {
    long left = of - n;
    return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

static void arrange(REAL *to, const REAL *from, long rows, long columns, long row_step, long column_step) {
    for (long r = 0; r < rows; r += taken(r, rows))
        for (long c = 0; c < columns; c++)
            for (long k = 0; k < taken(r, rows); k++) *to++ = from[(r + k) * row_step + c * column_step];
}

/* A member's weights as they were when the solve began: they may change before the way back. */
static void lay(const Walk *walk, long member) {
    const Field field = field_of(walk, member);
    for (long l = 0; l < field.depth; l++) {
        const Layer *layer = field.layers + l;
        long in = layer->in, out = layer->out;
        const REAL *weight = walk->weights[2 * l] + member * in * out;
        arrange(layer->there, weight, out, in, in, 1);
        arrange(layer->back, weight, in, out, 1, in);
        memcpy(layer->bias, walk->weights[2 * l + 1] + member * out, out * sizeof(REAL));
    }
}

INLINE V pick(Mask which, V one, V other) { return (V)(((Mask)one & which) | ((Mask)other & ~which)); }

INLINE V magnitude(V x) { return (V)((Mask)x & ~(Mask)all((REAL)-0.0)); }

/* exp(x), or exp(x) - 1 to all its digits, for x <= 0: 2^n exp(r) with |r| <= log(2) / 2. What is not a number stays so,
   and what would be less than the least normal number is 0. */
INLINE V exponential(V x, int minus_one) {
    const int single = sizeof(REAL) == 4, terms = single ? 7 : 13; /* of (exp(r) - 1) / r: 1 / (k + 1)! */
    const double series[] = {1,          1. / 2,      1. / 6,        1. / 24,       1. / 120,      1. / 720,      1. / 5040,
                             1. / 40320, 1. / 362880, 1. / 3628800,  1. / 39916800, 1. / 479001600, 1. / 6227020800};
    const REAL magic = single ? (REAL)0x1.8p23 : (REAL)0x1.8p52, least = single ? -87 : -708;
    const Mask vanishes = x < least;
    x = pick(vanishes, all(least), x);
    const V shifted = x * (REAL)1.44269504088896340736 + magic, n = shifted - magic; /* the nearest whole number */
    const V high = x - n * (single ? (REAL)0x1.62ep-1 : (REAL)0x1.62e42feep-1);
    const V r = high - n * (single ? (REAL)0x1.0bfbe8p-15 : (REAL)0x1.a39ef35793c76p-33);
    V sum = {0};
    for (int k = terms - 1; k >= 0; k--) sum = r * sum + (REAL)series[k];
    const Mask whole = (Mask)shifted - (Mask)all(magic);
    const V scale = (V)((whole + (single ? 127 : 1023)) << (single ? 23 : 52));
    if (minus_one) return scale * (r * sum) + (scale - 1);
    return pick(vanishes, (V){0}, scale * (r * sum) + scale);
}

/* log(1 + x) for 0 <= x <= 1: twice the artanh of x / (2 + x), which is at most a third. */
INLINE V log_of_one_more(V x) {
    const V u = x / (2 + x), square = u * u;
    const int terms = sizeof(REAL) == 4 ? 8 : 17;
    V sum = {0};
    for (int k = terms; k >= 0; k--) sum = sum * square + (REAL)1 / (2 * k + 1);
    return 2 * u * sum;
}

INLINE V sigmoid(V x) {
    const V e = exponential(-magnitude(x), 0);
    return pick(x < 0, e, all(1)) / (1 + e);
}

INLINE V activated(V x, int kind, REAL slope, V *derivative) {
    if (kind == RELU) return pick(x <= 0, (V){0}, x);
    if (kind == LEAKY_RELU) return pick(x <= 0, slope * x, x);
    if (kind == TANH) {
        const V e = exponential(-2 * magnitude(x), 1), y = -e / (2 + e);
        return (V)((Mask)y | ((Mask)x & (Mask)all((REAL)-0.0)));
    }
    if (kind == SIGMOID) return sigmoid(x);
    if (kind == SOFTPLUS) { /* as PyTorch: beyond 20 it is x */
        const V y = log_of_one_more(exponential(-magnitude(x), 0)) + pick(x < 0, (V){0}, x);
        return pick(x > 20, x, y);
    }
    if (kind == ELU) return pick(x <= 0, exponential(pick(x <= 0, x, (V){0}), 1), x);
    if (kind == SILU) {
        const V s = sigmoid(x);
        *derivative = s * (1 + x * (1 - s));
        return x * s;
    }
    return x;
}

/* The derivative of an activation, from its value y. */
INLINE V derived(V y, int kind, REAL slope) {
    if (kind == LEAKY_RELU) return pick(y <= 0, all(slope), all(1));
    if (kind == TANH) return 1 - y * y;
    if (kind == SIGMOID) return y * (1 - y);
    if (kind == SOFTPLUS) return pick(y > (REAL)20.000000002061154, all(1), -exponential(-y, 1)); /* that of 20 */
    if (kind == ELU) return pick(y <= 0, y + 1, all(1));
    return all(1);
}

/* Which activation it is, is known where these are compiled: they are without branches. */
#define FOR_EACH_KIND(DO) DO(RELU) DO(LEAKY_RELU) DO(TANH) DO(SIGMOID) DO(SOFTPLUS) DO(ELU) DO(SILU)

static void activate(const Layer *layer, V *y) {
    long n = layer->out;
#define CASE(KIND) case KIND: for (long i = 0; i < n; i++) y[i] = activated(y[i], KIND, layer->slope, y + n + i); break;
    switch (layer->activation) { FOR_EACH_KIND(CASE) }
#undef CASE
}

static void through_activation(const Layer *layer, const V *y, V *on) {
    long n = layer->out;
#define CASE(KIND) \
    case KIND: \
        for (long i = 0; i < n; i++) \
            if (KIND == RELU) on[i] = pick(y[i] <= 0, (V){0}, on[i]); /* also what is not finite */ \
            else on[i] *= KIND == SILU ? y[n + i] : derived(y[i], KIND, layer->slope); \
        break;
    switch (layer->activation) { FOR_EACH_KIND(CASE) }
#undef CASE
}

/* A few rows of a product with a matrix; where they are fewer than AT_ONCE, sums are split, to be as many. */
INLINE void rows_times(V *to, const V *x, const REAL *matrix, const REAL *bias, long in, int rows) {
    const int parts = AT_ONCE / rows;
    V sums[AT_ONCE];
    for (int k = 0; k < AT_ONCE; k++) sums[k] = bias && k < rows ? all(bias[k]) : (V){0};
    long i = 0;
    for (; i + parts <= in; i += parts)
        for (int k = 0; k < AT_ONCE; k++) sums[k] += matrix[i * rows + k] * x[i + k / rows];
    for (; i < in; i++)
        for (int k = 0; k < rows; k++) sums[k] += matrix[i * rows + k] * x[i];
    for (int n = AT_ONCE / 2; n >= rows; n /= 2)
        for (int k = 0; k < n; k++) sums[k] += sums[n + k];
    for (int k = 0; k < rows; k++) to[k] = sums[k];
}

static void product(V *to, const V *x, const REAL *matrix, const REAL *bias, long in, long out) {
    for (long o = 0; o < out; o += taken(o, out)) {
        const REAL *rows = matrix + o * in, *own = bias ? bias + o : 0;
        switch (taken(o, out)) {
            case 8: rows_times(to + o, x, rows, own, in, 8); break;
            case 4: rows_times(to + o, x, rows, own, in, 4); break;
            case 2: rows_times(to + o, x, rows, own, in, 2); break;
            default: rows_times(to + o, x, rows, own, in, 1);
        }
    }
}

/* The rate of change of z; the outputs of all layers are noted. */
static void evaluate(const Field *field, const V *z, V *notes, V *rate) {
    const V *x = z;
    for (long l = 0; l < field->depth; l++) {
        const Layer *layer = field->layers + l;
        V *y = notes + layer->notes;
        product(y, x, layer->there, layer->bias, layer->in, layer->out);
        activate(layer, y);
        x = y;
    }
    memcpy(rate, x, field->layers[field->depth - 1].out * sizeof(V));
}

/* [LANES][LANES] to its transposed: each round moves the highest bit of a place to its lowest. */
INLINE void transpose(const V *from, REAL *to, long step) {
    V room[2][LANES];
    const REAL *last = (const REAL *)from;
    int k = 0;
    for (int n = 1; n < LANES; n *= 2, k = !k) {
        REAL *next = (REAL *)room[k];
        for (int i = 0; i < LANES * LANES / 2; i++)
            next[2 * i] = last[i], next[2 * i + 1] = last[LANES * LANES / 2 + i];
        last = next;
    }
    for (int s = 0; s < LANES; s++) *(V *)(to + s * step) = v_at(last + s * LANES);
}

/* [n] vectors of samples to [LANES] samples of [n] units, filled up to whole vectors. */
static void turn(const V *x, long n, REAL *to) {
    long step = up(n, LANES), whole = n / LANES * LANES;
    for (long i = 0; i < whole; i += LANES) transpose(x + i, to + i, step);
    if (whole == n) return;
    V rest[LANES] = {{0}};
    memcpy(rest, x + whole, (n - whole) * sizeof(V));
    transpose(rest, to + whole, step);
}

/* Add the products of some units of one side with two vectors, or one, of the other's, of all samples. */
INLINE void outer_at(REAL *to, const V *x, const REAL *turned, long step, int rows, int vectors) {
    V sums[rows][vectors];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = v_at(to + r * step + v * LANES);
    for (int s = 0; s < LANES; s++)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) sums[r][v] += ((const REAL *)(x + r))[s] * v_at(turned + s * step + v * LANES);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(V *)(to + r * step + v * LANES) = sums[r][v];
}

static void add_outer(REAL *to, const V *x, long rows, const REAL *turned, long step) {
    for (long r = 0; r < rows;) {
        int some = rows - r >= 4 ? 4 : 1;
        for (long v = 0; v < step;) {
            int two = step - v > LANES;
            REAL *at = to + r * step + v;
            if (some == 4 && two) outer_at(at, x + r, turned + v, step, 4, 2);
            else if (some == 4) outer_at(at, x + r, turned + v, step, 4, 1);
            else if (two) outer_at(at, x + r, turned + v, step, 1, 2);
            else outer_at(at, x + r, turned + v, step, 1, 1);
            v += two ? 2 * LANES : LANES;
        }
        r += some;
    }
}

/* Add a layer's gradients, from its input and the cotangent of its product. */
static void add_gradients(const Layer *layer, const V *x, const V *on, REAL *share) {
    long in = layer->in, out = layer->out, longer = larger(in, out), step = up(longer, LANES);
    REAL *matrix = share + layer->share;
    V *bias = (V *)(matrix + matrix_size(layer)), turned[step]; /* LANES times that many numbers */
    turn(in > out ? x : on, longer, (REAL *)turned);
    add_outer(matrix, in > out ? on : x, in > out ? out : in, (const REAL *)turned, step);
    for (long o = 0; o < out; o++) bias[o] += on[o];
}

/* From the cotangent of a rate to that of z. `share` times the weights' gradients are added up, unless `on` is null. */
static void pull_back(
    const Field *field, const V *z, const V *notes, const V *on_rate, V *on_z, REAL share, const Gradient *on
) {
    V first[field->widest], second[field->widest], scaled[field->widest], *given = first, *found = second;
    memcpy(given, on_rate, field->layers[field->depth - 1].out * sizeof(V));
    for (long l = field->depth - 1; l >= 0; l--) {
        const Layer *layer = field->layers + l;
        through_activation(layer, notes + layer->notes, given);
        if (on) {
            for (long o = 0; o < layer->out; o++) scaled[o] = share * given[o];
            add_gradients(layer, l ? notes + field->layers[l - 1].notes : z, scaled, on->share);
        }
        if (!l) found = on_z;
        product(found, given, layer->back, 0, layer->out, layer->in);
        V *last = given;
        given = found, found = last;
    }
}

/* The sum of all tiles' shares, always in the same order, and the gradients from it, as PyTorch has the weights. */
static void sum_up(const Walk *walk, long member) {
    const Field field = field_of(walk, member);
    REAL *total = walk->shares + member * walk->tiles * field.share;
    for (long tile = 1; tile < walk->tiles; tile++)
        for (long k = 0; k < field.share; k++) total[k] += total[tile * field.share + k];
    for (long l = 0; l < field.depth; l++) {
        const Layer *layer = field.layers + l;
        long in = layer->in, out = layer->out, step = up(larger(in, out), LANES);
        const REAL *matrix = total + layer->share, *bias = matrix + matrix_size(layer);
        REAL *on_weight = walk->gradients[2 * l] + member * in * out;
        REAL *on_bias = walk->gradients[2 * l + 1] + member * out;
        for (long o = 0; o < out; o++) {
            for (long i = 0; i < in; i++) on_weight[o * in + i] = in > out ? matrix[o * step + i] : matrix[i * step + o];
            REAL sum = 0;
            for (int s = 0; s < LANES; s++) sum += bias[o * LANES + s];
            on_bias[o] = sum;
        }
    }
}
