/* The kernels of rows.cu on a CPU: a block is a thread, and has a single one of a GPU's. */
#include <cmath>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <vector>

using std::copysign; using std::erf; using std::erfc; using std::exp; using std::expm1; using std::fabs;
using std::fmax; using std::fmin; using std::isfinite; using std::log; using std::log1p; using std::pow;
using std::sin; using std::cos; using std::sqrt; using std::tanh;

static thread_local char *memory_of_block;
static thread_local int number_of_block, blocks_there;
static pthread_barrier_t barrier;

#define FN static inline
#define APART static
#define THREADS 1
#define THREAD 0
#define LANES 1
#define LOG_LANES 0
#define TILE number_of_block
#define GATHERING blocks_there
#define WAIT() ((void)0)
#define SHUFFLED(x, n) (x)
#define FRESH(x) (x)
#define WAIT_FOR_ALL(walk, round) pthread_barrier_wait(&barrier)
#define KERNEL(name) static void name(const Walk &walk)
#define MEMORY char *memory = memory_of_block;

#include "rows.cu"

extern "C" long size_of_walk() { return sizeof(Walk); }

/* All blocks at once where they wait for each other, or one after the other. */
extern "C" void launch(int kernel, const Walk *walk, int blocks, long bytes, int together) {
    void (*const kernels[])(const Walk &) = {there, back, adapt, gather};
    const auto work = [&](int block) {
        std::vector<double> room(bytes / sizeof(double) + 2, NAN); /* who reads before writing is found out */
        memory_of_block = (char *)(((size_t)room.data() + 15) & ~(size_t)15);
        number_of_block = block, blocks_there = blocks;
        kernels[kernel](*walk);
    };
    if (!together) {
        for (int block = 0; block < blocks; block++) work(block);
        return;
    }
    std::vector<std::thread> threads;
    pthread_barrier_init(&barrier, nullptr, blocks);
    for (int block = 0; block < blocks; block++) threads.emplace_back(work, block);
    for (auto &thread : threads) thread.join();
    pthread_barrier_destroy(&barrier);
}
