/* Update rules in one pass over memory, in the order of operations of elastic_ps/server/optimizers: the same bits.
 *
 * Compiled without contraction (a * b + c stays two roundings). It knows nothing of Python: called by ctypes, which
 * lets other threads run meanwhile.
 */

#include <math.h>
#include <stdint.h>

#define PIECE 2048 /* elements of a sum that stay in a core's own cache */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONED __attribute__((target_clones("avx2", "default")))
#else
#define CLONED
#endif

#if defined(__GNUC__) && !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep") /* old and new_ are the same memory or have nothing in common */
#else
#define INDEPENDENT
#endif

#define T float
#define NAME(x) x##_float32
#define SQRT sqrtf
#include "kernels.inc"
#undef T
#undef NAME
#undef SQRT

#define T double
#define NAME(x) x##_float64
#define SQRT sqrt
#include "kernels.inc"
#undef T
#undef NAME
#undef SQRT
