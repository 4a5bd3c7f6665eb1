/* What a kernel is given, and what it does before and after its steps. */

#define MOST_WEIGHTS 128

struct Walk {
    const Op *ops; /* there, and back */
    const Block *blocks;
    const double *constants, *tableau, *dense; /* [evaluated + 3][evaluated]: a, b, the error's weights and the times c;
                                                  [evaluated][degree] of the continuous extension, or null */
    const int *sources, *of_gradient;          /* the numbers in a share that a gradient's number is the sum of */
    int there, back, laid, layers, shares, gradients; /* sizes, in numbers */
    int samples, points, entries, tiles;       /* entries of a sample's state: the points, and their cotangents */
    int stages, evaluated, degree;             /* stages that propagate; with those for the error estimate alone */
    int steps, room, keep, adjoint, inner, landed;
    int at_tableau, at_layers, at_share, at_z, at_row, at_on, at_rates; /* on chip */
    double *nodes, *sizes;                     /* the times between steps, and the steps */
    const double *inner_times;                 /* times asked for between the first and the last */
    int *inner_steps;                          /* steps before each of them, or before the one that it is in */
    const REAL *start;                         /* [samples][points] */
    REAL *end;                                 /* [inner + 1][samples][points] */
    REAL *rows;                                /* [steps][stages][tiles][points][ROWS], and the end */
    REAL *kept_layers;                         /* as they were when the solve began */
    const REAL *on_end;                        /* cotangents */
    REAL *on_start, *share_of_tiles, *gradient; /* shares [tiles][shares]; of an adjoint so many: rows_adaptive.h */
    long long *counts;                         /* status, steps accepted, evaluations, steps rejected */
    double *sums;                              /* [2][2][tiles] */
    unsigned *arrived;
    double begin, finish, smallest, budget, order;
    double safety, most_growth, most_shrinking, rounding, rtol, atol;
    const REAL *weights[MOST_WEIGHTS];
};

/* What the threads of a block have on chip. */
struct Chip {
    double *tableau, *dense, *scratch;
    REAL *z, *row, *on, *rates, *layers, *share;
};

FN void copy_numbers(REAL *to, const REAL *from, int n) {
    for (int e = THREAD; e < n; e += THREADS) to[e] = from[e];
}

FN void lay_block(const Walk &walk, const Block &block, REAL *to) {
    if (block.external < 0) {
        for (int i = THREAD; i < block.in; i += THREADS) to[i] = (REAL)walk.constants[block.offset + i];
        return;
    }
    const REAL *from = walk.weights[block.external] + block.offset;
    const int by_input = block.out && block.by_in == 1; /* neighbours in memory to neighbours */
    const int lines = by_input || !block.out ? (block.out ? block.out : 1) : block.in;
    const int length = by_input || !block.out ? block.in : block.out;
    const int line_from = by_input ? block.by_out : block.by_in, by_from = by_input || !block.out ? block.by_in : block.by_out;
    const int line_to = by_input ? 1 : block.line, by_to = by_input || !block.out ? block.line : 1;
    for (int n = THREAD / LANES; n < lines; n += THREADS / LANES)
        for (int k = THREAD & (LANES - 1); k < length; k += LANES)
            to[n * line_to + k * by_to] = from[n * line_from + k * by_from];
}

/* Bring instructions, the tableau and the external tensors to the chip. Instructions lie at its very beginning. */
FN Chip prepare(const Walk &walk, int laid_before) {
    Chip chip;
    const int cells = (walk.evaluated + 3) * walk.evaluated;
    chip.tableau = (double *)numbers_from(walk.at_tableau);
    chip.dense = chip.tableau + cells;
    chip.scratch = chip.dense + walk.evaluated * walk.degree;
    chip.z = numbers_from(walk.at_z), chip.row = numbers_from(walk.at_row), chip.on = numbers_from(walk.at_on);
    chip.rates = numbers_from(walk.at_rates), chip.layers = numbers_from(walk.at_layers);
    chip.share = numbers_from(walk.at_share);
    for (int k = THREAD; k < cells; k += THREADS) chip.tableau[k] = walk.tableau[k];
    for (int k = THREAD; k < walk.evaluated * walk.degree; k += THREADS) chip.dense[k] = walk.dense[k];
    for (int k = THREAD; k < (walk.there + walk.back) * (int)(sizeof(Op) / sizeof(int)); k += THREADS)
        ((int *)numbers_from(0))[k] = ((const int *)walk.ops)[k];
    if (laid_before) copy_numbers(chip.layers, walk.kept_layers, walk.layers);
    else
        for (int b = 0; b < walk.laid; b++) lay_block(walk, walk.blocks[b], chip.layers + walk.blocks[b].place);
    WAIT();
    if (walk.keep && !laid_before && TILE == 0) copy_numbers(walk.kept_layers, chip.layers, walk.layers);
    return chip;
}

/* A tile's number e of a state [samples][points]. A tile is filled up with its last sample: another one might blow up
   where none of them does, and zero times that is no zero. Cotangents are filled up with zeros. */
FN REAL loaded(const Walk &walk, const REAL *state, int e, int cotangents) {
    const int sample = TILE * ROWS + e % ROWS, last = walk.samples - 1;
    if (sample > last && cotangents) return 0;
    return state[(long long)(sample < last ? sample : last) * walk.points + e / ROWS];
}

FN void store(const Walk &walk, REAL *state, int e, REAL value) {
    const int sample = TILE * ROWS + e % ROWS;
    if (sample < walk.samples) state[(long long)sample * walk.points + e / ROWS] = value;
}

FN REAL *output(const Walk &walk, REAL *states, int k) { return states + (long long)k * walk.samples * walk.points; }

FN const REAL *output(const Walk &walk, const REAL *states, int k) {
    return states + (long long)k * walk.samples * walk.points;
}

/* A row that is kept for the way back. */
FN REAL *kept_row(const Walk &walk, int row) {
    return walk.rows + ((long long)row * walk.tiles + TILE) * walk.points * ROWS;
}

/* The time of a stage of a step from one node to the next. */
FN REAL stage_time(const Walk &walk, const Chip &chip, int stage, double from, double to) {
    const double c = chip.tableau[(walk.evaluated + 2) * walk.evaluated + stage];
    return (REAL)(c == 1 ? to : from + c * (to - from));
}

/* sum + h sum_i weights_i rate_i, of number e */
FN REAL combined(const REAL *rates, int size, const double *weights, int count, double h, int e, REAL sum) {
    for (int i = 0; i < count; i++)
        if (weights[i] != 0) sum += (REAL)(h * weights[i]) * rates[i * size + e];
    return sum;
}

/* The weight of a step's rate i in the state at a time within it. */
FN double dense_weight(const Walk &walk, const Chip &chip, double from, double to, double time, int i) {
    const double place = (time - from) / (to - from);
    double weight = 0;
    for (int j = walk.degree - 1; j >= 0; j--) weight = (weight + chip.dense[i * walk.degree + j]) * place;
    return weight * (to - from);
}

/* The time lies right after the state in a row; its cotangent, if there is one, comes then. */
FN void set_clock(const Walk &walk, const Chip &chip, REAL t) {
    if (THREAD < ROWS || THREADS < ROWS)
        for (int r = THREAD; r < ROWS; r += THREADS) chip.row[walk.points * ROWS + r] = t;
}

/* The rate of the row on chip, put at this place. */
FN void evaluate(const Walk &walk, int rate) { run(rate, 0, walk.there, 0, 0); }

/* From the cotangent of a rate, at this place, to that of z. `share` times the weights' gradients are added up, unless
   that is 0. */
FN void pull_back(const Walk &walk, int on_rate, REAL share) {
    run(on_rate, walk.there, walk.there + walk.back, share, share != 0);
}
