/* The end of a training step: a linear classifier, its mean cross-entropy, and the gradients of that: see
   paper/fast/classifier.py. It stays beside PyTorch's operations, since there are some eighteen of them, which for a few
   features and classes take several times as long as the arithmetic.

   Samples go in tiles, one after the other, so that sums have one order. A tile is filled up with zeros whose cotangents
   are zero, too. */

typedef struct {
    long samples, features, classes;
    const REAL *weight, *bias, *x; /* [classes][features], [classes], [samples][features] */
    const long long *labels;       /* [samples] */
    REAL *logits, *on_x;           /* [samples][classes], [samples][features] */
} Classifier; /* of one member */

/* A member's sums, of each lane apart. */
typedef struct {
    V loss, *weight, *bias; /* the last two gradients: [classes][features], [classes] */
} Sums;

INLINE REAL total(V x) {
    REAL sum = 0;
    for (int s = 0; s < LANES; s++) sum += x[s];
    return sum;
}

/* So many rows of n numbers as n vectors, and back. */
INLINE void take_rows(const REAL *from, long rows, long n, V *to) {
    for (long i = 0; i < n; i++) to[i] = (V){0};
    for (long s = 0; s < rows; s++)
        for (long i = 0; i < n; i++) to[i][s] = from[s * n + i];
}

INLINE void put_rows(const V *from, long rows, long n, REAL *to) {
    for (long s = 0; s < rows; s++)
        for (long i = 0; i < n; i++) to[s * n + i] = from[i][s];
}

/* The losses of a tile; cotangents of their sum, times a scale, take the place of the logits. */
INLINE V cross_entropy(V *logits, long classes, Mask label, REAL scale) {
    V most = logits[0], sum = {0}, chosen = {0}, loss = {0};
    for (long k = 1; k < classes; k++) most = pick(logits[k] > most, logits[k], most);
    for (long k = 0; k < classes; k++) {
        const V below = logits[k] - most;
        chosen = pick(label == (Int)k, below, chosen);
        sum += logits[k] = exponential(below, 0);
    }
    for (int s = 0; s < LANES; s++) loss[s] = (sizeof(REAL) == 4 ? logf((float)sum[s]) : (REAL)log(sum[s])) - chosen[s];
    for (long k = 0; k < classes; k++) {
        const V wanted = pick(label == (Int)k, all(1), (V){0});
        logits[k] = pick(label >= 0, (logits[k] / sum - wanted) * scale, (V){0});
    }
    return pick(label >= 0, loss, (V){0});
}

static void classify_tile(const Classifier *c, long first, Sums *sums) {
    const long n = c->features, left = c->samples - first, rows = left < LANES ? left : LANES;
    V x[n], on_x[n], logits[c->classes];
    Mask label = (Mask){0} - 1;
    take_rows(c->x + first * n, rows, n, x);
    for (long s = 0; s < rows; s++) label[s] = (Int)c->labels[first + s];
    for (long k = 0; k < c->classes; k++) {
        logits[k] = all(c->bias[k]);
        for (long i = 0; i < n; i++) logits[k] += c->weight[k * n + i] * x[i];
    }
    put_rows(logits, rows, c->classes, c->logits + first * c->classes);
    sums->loss += cross_entropy(logits, c->classes, label, (REAL)1 / (REAL)c->samples);
    for (long i = 0; i < n; i++) on_x[i] = (V){0};
    for (long k = 0; k < c->classes; k++) {
        sums->bias[k] += logits[k];
        for (long i = 0; i < n; i++) {
            sums->weight[k * n + i] += logits[k] * x[i];
            on_x[i] += logits[k] * c->weight[k * n + i];
        }
    }
    put_rows(on_x, rows, n, c->on_x + first * n);
}

/* A member's mean loss. */
static REAL classify_member(const Classifier *c, REAL *on_weight, REAL *on_bias) {
    const long weights = c->classes * c->features;
    V weight[weights], bias[c->classes];
    Sums sums = {{0}, weight, bias};
    memset(weight, 0, sizeof(weight));
    memset(bias, 0, sizeof(bias));
    for (long first = 0; first < c->samples; first += LANES) classify_tile(c, first, &sums);
    for (long i = 0; i < weights; i++) on_weight[i] = total(weight[i]);
    for (long k = 0; k < c->classes; k++) on_bias[k] = total(bias[k]);
    return total(sums.loss) / (REAL)c->samples;
}

/* All members, whose tensors have a leading member axis. 0, and nothing done, where a label is that of no class. */
long classify(long members, long samples, long features, long classes, const REAL *weight, const REAL *bias, const REAL *x,
              const long long *labels, REAL *losses, REAL *logits, REAL *on_weight, REAL *on_bias, REAL *on_x) {
    for (long s = 0; s < members * samples; s++)
        if (labels[s] < 0 || labels[s] >= classes) return 0;
    for (long m = 0; m < members; m++) {
        const long row = m * samples, first = m * classes;
        const Classifier own = {samples, features, classes, weight + first * features, bias + first, x + row * features,
                                labels + row, logits + row * classes, on_x + row * features};
        losses[m] = classify_member(&own, on_weight + first * features, on_bias + first);
    }
    return 1;
}
