/* Functions of one number, in the order of instructions.py's KINDS, and their derivatives. */

enum {
    RELU, LEAKY_RELU, TANH, SIGMOID, SOFTPLUS, ELU, EXP, SQRT, /* whose derivatives are found from their values */
    SILU, MISH, GELU, NORMAL_CDF, SIN, COS, LOG, ABS, POW, ERF, LOG1P, NO_FUNCTION
};

FN REAL sigmoid(REAL x) {
    const REAL e = exp(-fabs(x));
    return (x < 0 ? e : (REAL)1) / (1 + e);
}

/* tanh(softplus(x)) */
FN REAL mish_gate(REAL x) {
    const REAL e = exp(-fabs(x)), up = x < 0 ? e * (e + 2) : 1 + 2 * e;
    return up / (up + (x < 0 ? (REAL)2 : 2 * e * e));
}

FN REAL normal_share(REAL x) { return (REAL)0.5 * erfc(-x * (REAL)0.70710678118654752440); }

FN REAL bell(REAL x, REAL scale) { return scale * exp((REAL)-0.5 * x * x); }

/* These are called, so that the code of all else stays short, and is soon compiled. What is not a number stays so. */
APART REAL value_of(REAL x, int kind, REAL number) {
    switch (kind) {
        case RELU: return x <= 0 ? (REAL)0 : x;
        case LEAKY_RELU: return x <= 0 ? number * x : x;
        case TANH: return tanh(x);
        case SIGMOID: return sigmoid(x);
        case ELU: return x <= 0 ? expm1(x) : x;
        case SILU: return x * sigmoid(x);
        case MISH: return x * mish_gate(x);
        case GELU: return x * normal_share(x);
        case NORMAL_CDF: return normal_share(x);
        case SIN: return sin(x);
        case COS: return cos(x);
        case LOG: return log(x);
        case ABS: return fabs(x);
        case POW: return pow(x, number);
        case ERF: return erf(x);
        case LOG1P: return log1p(x);
        case SQRT: return sqrt(x);
        case EXP: return exp(x);
        case SOFTPLUS: return x > 20 ? x : log1p(exp(-fabs(x))) + (x < 0 ? (REAL)0 : x); /* as PyTorch */
    }
    return x;
}

/* The derivative at x, of kinds that need more than the value to find it. */
APART REAL slope_at(REAL x, int kind, REAL number) {
    const REAL density = (REAL)0.39894228040143267794;
    switch (kind) {
        case SILU: { const REAL s = sigmoid(x); return s * (1 + x * (1 - s)); }
        case MISH: { const REAL t = mish_gate(x); return t + x * sigmoid(x) * (1 - t * t); }
        case GELU: return normal_share(x) + x * bell(x, density);
        case NORMAL_CDF: return bell(x, density);
        case SIN: return cos(x);
        case COS: return -sin(x);
        case LOG: return 1 / x;
        case LOG1P: return 1 / (1 + x);
        case ABS: return x == 0 ? (REAL)0 : x < 0 ? (REAL)-1 : (REAL)1;
        case POW: return number * pow(x, number - 1);
        case ERF: return bell(x * (REAL)1.41421356237309504880, (REAL)1.12837916709551257390);
    }
    return 1;
}

/* From the cotangent of a function's value y to that of what it was given. */
APART REAL through(REAL on, REAL y, int kind, REAL number) {
    switch (kind) {
        case RELU: return y <= 0 ? (REAL)0 : on; /* also what is not finite */
        case LEAKY_RELU: return on * (y <= 0 ? number : (REAL)1);
        case TANH: return on * (1 - y * y);
        case SIGMOID: return on * (y * (1 - y));
        case SOFTPLUS: return on * (y > (REAL)20.000000002061154 ? (REAL)1 : -expm1(-y)); /* that of 20 */
        case ELU: return on * (y <= 0 ? y + 1 : (REAL)1);
        case EXP: return on * y;
        case SQRT: return on * ((REAL)0.5 / y);
    }
    return on;
}
