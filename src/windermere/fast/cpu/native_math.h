/* Functions of each number in a vector, to a few roundings; what is not a number stays so. */

INLINE V pick(Mask which, V one, V other) { return (V)(((Mask)one & which) | ((Mask)other & ~which)); }

INLINE V magnitude(V x) { return (V)((Mask)x & ~(Mask)all((REAL)-0.0)); }

/* exp(x), or exp(x) - 1 to all its digits, for x that are not large: 2^n exp(r) with |r| <= log(2) / 2. What would be
   less than the least normal number is 0. */
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
    const V square = r * r;
    V sum = all((REAL)series[terms - 1]); /* two terms at once: what waits for what takes longer than the work */
    for (int k = terms - 3; k >= 0; k -= 2) sum = square * sum + (r * (REAL)series[k + 1] + (REAL)series[k]);
    const int digits = single ? 23 : 52; /* magic's own bits are shifted out */
    const V scale = (V)(((Mask)shifted << digits) + ((Int)(single ? 127 : 1023) << digits));
    if (minus_one) return scale * (r * sum) + (scale - 1);
    return pick(vanishes, (V){0}, scale * (r * sum) + scale);
}

/* exp(x) for any x, by two factors where it is large: infinite where REAL has no such number. */
INLINE V exponential_of_any(V x) {
    const REAL most = sizeof(REAL) == 4 ? (REAL)88.72283 : (REAL)709.78271289338397, large = sizeof(REAL) == 4 ? 80 : 700;
    const V rest = pick(x > large, all(large), (V){0}), below = pick(x > most, (V){0}, x - rest);
    const REAL factor = sizeof(REAL) == 4 ? (REAL)5.5406223843935098e34 : (REAL)1.0142320547350045e304;
    const V e = exponential(below, 0) * pick(x > large, all(factor), all(1));
    return pick(x > most, all((REAL)INFINITY), e);
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

/* In single precision by a ratio of polynomials, in half the time of an exponential: fitted up to 9.02, from where on it
   is 1, with the least largest relative error (3e-8; with roundings 3e-7). */
INLINE V hyperbolic_tangent(V x) {
    const double up[] = {0x1.c9a9ccp-27, 0x1.5957a2p-16, 0x1.c9f984p-9, 0x1.12047p-3, 1};
    const double down[] = {0x1.a0bc34p-21, 0x1.584356p-12, 0x1.a7dfbcp-6, 0x1.de5784p-2, 1};
    const V size = magnitude(x);
    V y;
    if (sizeof(REAL) == 4) {
        const V most = all((REAL)9.02), z = pick(size > most, most, size), square = z * z;
        V one = all((REAL)up[0]), other = all((REAL)down[0]);
        for (int k = 1; k < 5; k++) one = one * square + (REAL)up[k], other = other * square + (REAL)down[k];
        y = z * one / other;
        y = pick(y > 1, all(1), y);
    } else {
        const V e = exponential(-2 * size, 1);
        y = -e / (2 + e);
    }
    return (V)((Mask)y | ((Mask)x & (Mask)all((REAL)-0.0)));
}

/* The normal distribution's share below x: half of erfc(|x| / sqrt(2)), or 1 less that. With t = 2 / (2 + z), the
   logarithm of erfc(z) exp(z^2) / t is smooth: a series of Chebyshev's polynomials of 2 t - 1. */
INLINE V normal_share(V x) {
    const double series[] = {
        -1.30265371978170944,     0.641969792356490267,    0.0194764732041858323,   -0.009561514786808631,
        -0.000946595344482034008, 0.000366839497852755781, 4.25233248069148926e-5,  -2.02785781125411081e-5,
        -1.62429000464205835e-6,  1.30365583557863735e-6,  1.56264417204284963e-8,  -8.52380959101688759e-8,
        6.52905443237129027e-9,   5.059343502630291e-9,    -9.913641622259535e-10,  -2.27365119274099905e-10,
        9.64679114262168981e-11,  2.39403436564074507e-12, -6.88602140618427279e-12, 8.94480885567867548e-13,
        3.13098407190568105e-13,  -1.12712214945874852e-13, 3.81859445187435366e-16, 7.10871729020797333e-15,
        -1.52838595659161109e-15, -8.77856976048520229e-17, 1.14447467600323889e-16, -2.33874677882836851e-17,
    };
    const V z = magnitude(x) * (REAL)0.70710678118654752440, t = 2 / (2 + z), twice = 4 * t - 2;
    V next = {0}, last = {0};
    for (int k = sizeof(REAL) == 4 ? 11 : 27; k > 0; k--) {
        const V sum = twice * next - last + (REAL)series[k];
        last = next, next = sum;
    }
    const V power = (REAL)0.5 * (twice * next + (REAL)series[0]) - last;
    const V half = (REAL)0.5 * t * exponential(power - z * z, 0);
    return pick(x < 0, half, 1 - half);
}

/* sin(x), or with a quarter turn more cos(x): by the rest of x over quarters of a turn. Of large x, by libm. */
INLINE V sine(V x, int more) {
    const int single = sizeof(REAL) == 4;
    const REAL most = single ? (REAL)8192 : (REAL)1e6, magic = single ? (REAL)0x1.8p23 : (REAL)0x1.8p52;
    const Mask far = ~(magnitude(x) <= most);
    int any = 0;
    for (int s = 0; s < LANES; s++) any |= far[s] != 0;
    if (any) {
        V y;
        for (int s = 0; s < LANES; s++) y[s] = (REAL)(more ? cos((double)x[s]) : sin((double)x[s]));
        return y;
    }
    const V shifted = x * (REAL)0.63661977236758134308 + magic, n = shifted - magic;
    const Mask quarter = (Mask)shifted - (Mask)all(magic) + more;
    V r = x - n * (single ? (REAL)1.5703125 : (REAL)1.57079625129699707031);
    r -= n * (single ? (REAL)4.837512969970703125e-4 : (REAL)7.54978941586159635335e-8);
    r -= n * (single ? (REAL)7.54978995489188216e-8 : (REAL)5.39030285815811905290e-15);
    const V square = r * r;
    V odd = {0}, even = {0};
    for (int k = single ? 5 : 9; k > 0; k--) {
        odd = (1 - odd) * square * (REAL)(1. / ((2 * k) * (2 * k + 1)));
        even = (1 - even) * square * (REAL)(1. / ((2 * k) * (2 * k - 1)));
    }
    const V y = pick((quarter & 1) != 0, 1 - even, r - r * odd);
    return pick((quarter & 2) != 0, -y, y);
}

/* In the order of instructions.py's KINDS. */
enum {
    RELU, LEAKY_RELU, TANH, SIGMOID, SOFTPLUS, ELU, EXP, SQRT, /* whose derivatives are found from their values */
    SILU, MISH, GELU, NORMAL_CDF, SIN, COS, LOG, ABS, POW, ERF, LOG1P
};
#define FOR_EACH_KIND(DO) \
    DO(RELU) DO(LEAKY_RELU) DO(TANH) DO(SIGMOID) DO(SOFTPLUS) DO(ELU) DO(EXP) DO(SQRT) \
    DO(SILU) DO(MISH) DO(GELU) DO(NORMAL_CDF) DO(SIN) DO(COS) DO(LOG) DO(ABS) DO(POW) DO(ERF) DO(LOG1P)

#define EACH(EXPRESSION) for (int s = 0; s < LANES; s++) y[s] = (REAL)(EXPRESSION);

INLINE V value_of(V x, int kind, REAL number) {
    V y = x;
    if (kind == RELU) return pick(x <= 0, (V){0}, x);
    if (kind == LEAKY_RELU) return pick(x <= 0, number * x, x);
    if (kind == TANH) return hyperbolic_tangent(x);
    if (kind == SIGMOID) return sigmoid(x);
    if (kind == SOFTPLUS) { /* as PyTorch: beyond 20 it is x */
        y = log_of_one_more(exponential(-magnitude(x), 0)) + pick(x < 0, (V){0}, x);
        return pick(x > 20, x, y);
    }
    if (kind == ELU) return pick(x <= 0, exponential(pick(x <= 0, x, (V){0}), 1), x);
    if (kind == EXP) return exponential_of_any(x);
    if (kind == SQRT) EACH(sqrt(x[s]))
    if (kind == SILU) return x * sigmoid(x);
    if (kind == NORMAL_CDF) return normal_share(x);
    if (kind == GELU) return x * normal_share(x);
    if (kind == SIN) return sine(x, 0);
    if (kind == COS) return sine(x, 1);
    if (kind == LOG) EACH(log(x[s]))
    if (kind == ABS) return magnitude(x);
    if (kind == POW) EACH(pow(x[s], number))
    if (kind == ERF) EACH(erf(x[s]))
    if (kind == LOG1P) EACH(log1p(x[s]))
    if (kind == MISH) { /* x tanh(softplus(x)) */
        const V e = exponential(-magnitude(x), 0), up = pick(x < 0, e * (e + 2), 1 + 2 * e);
        return x * up / (up + pick(x < 0, all(2), 2 * e * e));
    }
    return y;
}

INLINE V bell(V x, REAL scale) { return scale * exponential((REAL)-0.5 * x * x, 0); }

/* The value, and the derivative in its place: for kinds that need more than the value to find it. */
INLINE V noted_value(V x, int kind, REAL number, V *derivative) {
    const V y = value_of(x, kind, number);
    if (kind == SILU) {
        const V s = sigmoid(x);
        *derivative = s * (1 + x * (1 - s));
    } else if (kind == MISH) {
        const V e = exponential(-magnitude(x), 0), up = pick(x < 0, e * (e + 2), 1 + 2 * e);
        const V t = up / (up + pick(x < 0, all(2), 2 * e * e));
        *derivative = t + x * sigmoid(x) * (1 - t * t);
    } else if (kind == GELU) *derivative = normal_share(x) + x * bell(x, (REAL)0.39894228040143267794);
    else if (kind == NORMAL_CDF) *derivative = bell(x, (REAL)0.39894228040143267794);
    else if (kind == SIN) *derivative = sine(x, 1);
    else if (kind == COS) *derivative = -sine(x, 0);
    else if (kind == LOG) *derivative = 1 / x;
    else if (kind == LOG1P) *derivative = 1 / (1 + x);
    else if (kind == ABS) *derivative = pick(x == 0, (V){0}, pick(x < 0, all(-1), all(1)));
    else if (kind == POW) for (int s = 0; s < LANES; s++) (*derivative)[s] = number * (REAL)pow(x[s], number - 1);
    else if (kind == ERF) *derivative = bell(x * (REAL)1.41421356237309504880, (REAL)1.12837916709551257390);
    return y;
}

/* The derivative, from the value y. */
INLINE V derived(V y, int kind, REAL number) {
    if (kind == LEAKY_RELU) return pick(y <= 0, all(number), all(1));
    if (kind == TANH) return 1 - y * y;
    if (kind == SIGMOID) return y * (1 - y);
    if (kind == SOFTPLUS) return pick(y > (REAL)20.000000002061154, all(1), -exponential(-y, 1)); /* that of 20 */
    if (kind == ELU) return pick(y <= 0, y + 1, all(1));
    if (kind == EXP) return y;
    if (kind == SQRT) return (REAL)0.5 / y;
    return all(1);
}
