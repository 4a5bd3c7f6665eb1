/* Whole solves of a row program on a GPU, each in one kernel: see path.py and rows_program.h.

Compiled by NVRTC for a kind of number (REAL), so many samples of a tile (ROWS) and THREADS of a block. A test compiles
the same text as C++ for a CPU, with one thread to a block, and defines the words below for itself. */

#ifdef __CUDACC__
#define FN static __device__ __forceinline__
#define APART static __device__ __noinline__
#define THREAD ((int)threadIdx.x)
#define TILE ((int)blockIdx.x)
#define LANES 32
#define LOG_LANES 5
#define GATHERING ((int)gridDim.x)
#undef NAN
#define NAN __longlong_as_double(0x7ff8000000000000ll)
#define WAIT() __syncthreads()
#define SHUFFLED(x, n) __shfl_xor_sync(~0u, x, n)
#define FRESH(x) (*(const volatile double *)&(x))
#define WAIT_FOR_ALL(walk, round) wait_for_all(walk, round)
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ Walk walk)
#define MEMORY extern __shared__ __align__(16) char memory[];
#endif

#define SCRATCH (2 * (THREADS / LANES) + 2)

#include "rows_math.h"
#include "rows_program.h"
#include "rows_walk.h"

#ifdef __CUDACC__
/* All blocks are there at once, as the launch is a cooperative one. */
FN void wait_for_all(const Walk &walk, int round) {
    __threadfence();
    __syncthreads();
    if (THREAD == 0) {
        atomicAdd(walk.arrived, 1u);
        while (*(const volatile unsigned *)walk.arrived < (unsigned)(walk.tiles * round)) {}
        __threadfence();
    }
    __syncthreads();
}
#endif

#include "rows_fixed.h"
#include "rows_adaptive.h"

KERNEL(there) {
    tile_there(walk, prepare(walk, 0));
}

KERNEL(back) {
    tile_back(walk, prepare(walk, 1));
}

KERNEL(adapt) {
    const Chip chip = prepare(walk, 0);
    Trial trial = {walk.begin, walk.begin, 0, 0, 0};
    int evaluations = 0, rejected = 0;
    const int status = walk_adaptively(walk, chip, trial, evaluations, rejected);
    if (TILE || THREAD) return;
    walk.counts[0] = status, walk.counts[1] = trial.step, walk.counts[2] = evaluations, walk.counts[3] = rejected;
}

/* The sum of all tiles' shares, always in the same order, as gradients lie in memory: a warp's lanes have neighbouring
   numbers, and warps some of the tiles each. */
KERNEL(gather) {
    REAL *sums = numbers_from(0); /* [warps][LANES] */
    const int lane = THREAD % LANES, warp = THREAD / LANES, warps = THREADS / LANES;
    for (int first = TILE * LANES; first < walk.gradients; first += GATHERING * LANES) {
        const int g = first + lane;
        REAL sum = 0;
        if (g < walk.gradients)
            for (int k = walk.of_gradient[g]; k < walk.of_gradient[g + 1]; k++)
                for (int tile = warp; tile < walk.tiles; tile += warps)
                    sum += walk.share_of_tiles[(long long)tile * walk.shares + walk.sources[k]];
        sums[warp * LANES + lane] = sum;
        WAIT();
        for (int k = 1; warp == 0 && k < warps; k++) sum += sums[k * LANES + lane];
        if (warp == 0 && g < walk.gradients) walk.gradient[g] = sum;
        WAIT();
    }
}
