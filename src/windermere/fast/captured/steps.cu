/* What lies between evaluations of a field, by few kernels: each does at once what PyTorch would do in many small
   operations. All of the state is one group, in float32. The clock (times, sizes, decisions) is float64, as in
   solvers/adaptive.py. Compiled by NVRTC; a test compiles the same text as C++, and defines the words below itself.

   A block of THREADS has BLOCK numbers. */

#ifdef __CUDACC__
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(THREADS) name
#define FN static __device__ __forceinline__
#define THREAD ((int)threadIdx.x)
#define TILE ((int)blockIdx.x)
#define SHARED __shared__
#define WAIT() __syncthreads()
#endif

#define MOST_TERMS 7
typedef long long Whole;

/* sum_i w_i k_i */
struct Terms {
    const float *k[MOST_TERMS];
    float w[MOST_TERMS];
    int count;
};

#define EACH(e, size) for (int e = TILE * BLOCK + THREAD; e < size && e < (TILE + 1) * BLOCK; e += THREADS)

FN float sum_of(const Terms &terms, int e) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < MOST_TERMS; i++)
        if (i < terms.count) total += terms.w[i] * terms.k[i][e];
    return total;
}

/* The sum over a block's threads, for the first of them. */
FN double sum_of_block(double own) {
    SHARED double sums[THREADS];
    sums[THREAD] = own;
    WAIT();
    for (int n = THREADS / 2; n; n /= 2) {
        if (THREAD < n) sums[THREAD] += sums[THREAD + n];
        WAIT();
    }
    return sums[0];
}

/* out = base + h sum_i w_i k_i; and the step's number advances. */
KERNEL(move)(float *out, const float *base, const float *h, Whole *number, int size, int advance, const Terms terms) {
    EACH(e, size) {
        const float moved = *h * sum_of(terms, e);
        out[e] = base ? base[e] + moved : moved;
    }
    if (TILE == 0 && THREAD == 0) *number += advance;
}

/* The row of the next step from the table; its state is kept, or fetched from those kept. */
KERNEL(fetch)(float *z, float *states, const float *table, float *row, const Whole *number, int size, int columns,
              int stores, int loads) {
    const Whole n = *number;
    EACH(e, size) {
        if (stores) states[n * size + e] = z[e];
        if (loads) z[e] = states[n * size + e];
    }
    if (TILE == 0)
        for (int c = THREAD; c < columns; c += THREADS) row[c] = table[n * columns + c];
}

/* What to try next. numbers: t, h, end; scratch: h tried, its sign on, where it leads, whether it is tried. */
KERNEL(aim)(const double *numbers, const Whole *seen, const Whole *number, const double *fractions, float *row,
            double *scratch, int stages, int room, int kept) {
    if (THREAD) return;
    const double t = numbers[0], h = numbers[1], end = numbers[2], left = fabs(end - t);
    const bool active = t != end && seen[1] == 0 && (!kept || *number < room);
    const double tried = !active ? 0.0 : h >= left * (1 - 1e-10) ? left : h, sign = end >= t ? tried : -tried;
    const double reached = active && tried == left ? end : t + sign;
    for (int c = 0; c < stages; c++) row[c] = (float)(fractions[c] == 1.0 ? reached : t + fractions[c] * sign);
    row[stages] = (float)sign;
    scratch[0] = tried, scratch[1] = sign, scratch[2] = reached, scratch[3] = active;
}

/* Each block's sum of squares of the estimated error over what it may be. */
KERNEL(measure)(double *partial, const float *z, const float *stepped, const float *h, const double *numbers, int size,
                const Terms terms) {
    const float rtol = (float)numbers[3], atol = (float)numbers[4];
    double total = 0;
    EACH(e, size) {
        const float before = fabsf(z[e]), after = fabsf(stepped[e]);
        /* what is not a number stays so, as in PyTorch's maximum */
        const float largest = before > after || before != before ? before : after;
        const float ratio = *h * sum_of(terms, e) / (atol + rtol * largest);
        total += (double)(ratio * ratio);
    }
    total = sum_of_block(total);
    if (THREAD == 0) partial[TILE] = total;
}

/* Accept or reject the try, propose the next one, and count. scratch[4]: whether it was accepted; [5]: its place. */
KERNEL(decide)(const double *partial, double *numbers, const double *limits, double *scratch, Whole *costs, Whole *seen,
               unsigned char *known, Whole *number, float *table, double *nodes, const float *row, int blocks, int size,
               int stages, double order, int kept, int knows, int reuse) {
    double total = 0;
    for (int k = THREAD; k < blocks; k += THREADS) total += partial[k];
    total = sum_of_block(total);
    if (THREAD) return;
    const double ratio = sqrt(total / size), t = numbers[0], end = numbers[2];
    const double tried = scratch[0], reached = scratch[2];
    const bool active = scratch[3] != 0, finite = isfinite(ratio), accept = active && ratio <= 1;
    const double least = ratio < 1 ? 1.0 : MOST_SHRINKING;
    double proposal = tried * fmin(fmax(SAFETY / pow(ratio, 1 / order), least), MOST_GROWTH);
    if (accept) proposal = fmax(proposal, numbers[1]);
    const double h = active && finite ? proposal : numbers[1];
    if (kept) {
        const Whole n = *number;
        for (int c = 0; c <= stages; c++) table[n * (stages + 1) + c] = row[c];
        nodes[2 * n] = t, nodes[2 * n + 1] = reached;
        scratch[5] = (double)n;
        *number = n + accept, seen[2] = n + accept;
    }
    const double now = accept ? reached : t;
    const bool stale = active && !*known, rejected = active && !accept;
    costs[0] += active * (stages - 1) + stale;
    costs[1] += accept;
    costs[2] += rejected;
    if (knows && !reuse && active) *known = !accept && (*known || stale);
    const bool spent = (double)(costs[1] + costs[2]) >= limits[3] && now != limits[1], lost = active && !finite;
    const bool trouble = lost || (rejected && h < limits[2]) || (active && spent);
    numbers[0] = now, numbers[1] = h;
    seen[0] = now == end;
    seen[1] |= (Whole)trouble;
    scratch[4] = accept;
}

/* Go on from where an accepted try led; keep the state before it. */
KERNEL(commit)(float *z, const float *stepped, float *k, const float *last, float *states, const double *scratch,
               int size, int kept, int reuse) {
    const bool accept = scratch[4] != 0;
    const Whole n = kept ? (Whole)scratch[5] : 0;
    EACH(e, size) {
        if (kept) states[n * size + e] = z[e];
        if (accept) z[e] = stepped[e];
        if (accept && reuse) k[e] = last[e];
    }
}
