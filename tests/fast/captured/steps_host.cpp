/* The kernels of steps.cu on a CPU: a block is one thread. */
#include <cmath>
#include <utility>

using std::fabs; using std::fmax; using std::fmin; using std::isfinite; using std::pow; using std::sqrt;

static int number_of_block;
#define KERNEL(name) static void name
#define FN static inline
#define THREADS 1
#define THREAD 0
#define TILE number_of_block
#define SHARED
#define WAIT() ((void)0)

#include "steps.cu"

template <class... A, std::size_t... I>
static void call(void (*kernel)(A...), void **given, std::index_sequence<I...>) {
    kernel(*(typename std::remove_cv<A>::type *)given[I]...);
}

template <class... A> static void run(void (*kernel)(A...), int blocks, void **given) {
    for (number_of_block = 0; number_of_block < blocks; number_of_block++)
        call(kernel, given, std::index_sequence_for<A...>());
}

extern "C" void launch(int kernel, int blocks, void **given) {
    switch (kernel) {
        case 0: return run(move, blocks, given);
        case 1: return run(fetch, blocks, given);
        case 2: return run(aim, blocks, given);
        case 3: return run(measure, blocks, given);
        case 4: return run(decide, blocks, given);
        case 5: return run(commit, blocks, given);
    }
}
extern "C" long size_of_terms() { return sizeof(Terms); }
