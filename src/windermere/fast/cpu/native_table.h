/* A field's table of segments from its weights, and the gradients of the weights from sums over segments: see
native_sphere.h. A kink is where a channel of the first layer begins or ceases to be positive; rising channels are
positive in all segments above theirs, falling ones in all below. Segment k ends at the k-th kink. */

#define NEXT(x, to) (sizeof(REAL) == 4 ? (REAL)nextafterf((float)(x), to) : (REAL)nextafter(x, to))

static long table_size(const Walk *walk) { return (walk->channels + 1) * 6 * walk->width; }

static long layers_size(const Walk *walk) {
    return table_size(walk) + 3 * walk->channels * walk->width + 5 * walk->width + LANES;
}

static long share_size(const Walk *walk) { return table_size(walk) + LANES; }

static long work_size(const Walk *walk) { return 0; }

static long notes_size(const Walk *walk) { return walk->points * walk->width / PAIR; }

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
    Kink kink = {own->lift[channel], own->lift_bias[channel], 0, channel, !(own->lift[channel] < 0)};
    kink.at = -kink.bias / kink.weight;
    if (kink.weight < 0) kink.at = NEXT(kink.at, -INFINITY); /* at its kink, no channel is positive */
    if (kink.weight == 0) kink.at = kink.bias <= 0 ? INFINITY : -INFINITY;
    if (kink.at != kink.at) kink.at = -INFINITY, kink.rising = 1; /* what is not a number is found in every segment */
    return kink;
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

/* The sum of all shares, always in the same order, and the gradients from it, as PyTorch has the weights. */
static void sum_up(const Walk *walk, long member) {
    const Layers own = layers_of(walk, member);
    long m = walk->channels, length = 6 * walk->width, size = share_size(walk);
    REAL *total = walk->shares + member * shares_of(walk) * size, row[length], on_lower_bias = 0;
    Kink kinks[m];
    for (long k = 1; k < shares_of(walk); k++)
        for (long e = 0; e < size; e++) total[e] += total[k * size + e];
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
