/* Vectors: a tile is LANES samples, and a vector V holds one value of all of them, or LANES values of one. */

#if defined(__AVX512F__)
#define BYTES 64 /* of a vector: what the processor has, as compilers do badly with larger ones */
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES (BYTES / (int)sizeof(REAL))
#define INLINE static inline __attribute__((always_inline))

typedef REAL V __attribute__((vector_size(BYTES)));
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int)0, (long)0)) Int;
typedef Int Mask __attribute__((vector_size(BYTES))); /* or numbers as large as REAL */

INLINE V v_at(const REAL *from) { return *(const V *)from; }

INLINE V all(REAL value) { return value - (V){0}; } /* + would make -0 into 0, and so takes time */
