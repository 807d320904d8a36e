/* Update rules in one pass over memory, in the order of operations of elastic_ps/optimizers: the same bits.
 *
 * Compiled without contraction (a * b + c stays two roundings). It knows nothing of Python: called by ctypes, which
 * lets other threads run meanwhile.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PIECE 2048 /* elements of a sum that stay in a core's own cache */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONED __attribute__((target_clones("avx2", "default")))
#define FUSED __attribute__((target_clones("fma", "default"))) /* multiplies and adds in one instruction */
#else
#define CLONED
#define FUSED
#endif

#if defined(__GNUC__) && !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep") /* old and new_ are the same memory or have nothing in common */
#else
#define INDEPENDENT
#endif

#define T float
#define NAME(x) x##_float32
#define SQRT sqrtf
#define FMA(a, b, c) fmaf(a, b, c)
#include "kernels.inc"
#undef T
#undef NAME
#undef SQRT
#undef FMA

#define T double
#define NAME(x) x##_float64
#define SQRT sqrt
#define FMA(a, b, c) ((a) * (b) + (c)) /* numpy has no wider type to do it in one rounding, and has to give the same */
#include "kernels.inc"
#undef T
#undef NAME
#undef SQRT
#undef FMA

/* Copy the bytes [low, high) of pieces that are counted through: `ends` are their ends, the first begins at 0.
 * `piece` is the one in which `low` is. */
void move_bytes(const int64_t *to, const int64_t *from, const int64_t *ends, int64_t piece, int64_t low, int64_t high)
{
    for (; low < high; piece++) {
        int64_t start = piece ? ends[piece - 1] : 0, stop = ends[piece] < high ? ends[piece] : high;
        memcpy((char *)(intptr_t)to[piece] + (low - start), (const char *)(intptr_t)from[piece] + (low - start),
               (size_t)(stop - low));
        low = stop;
    }
}

/* Where each of some arrays lies, as a framework's function tells; 0, or what that function says went wrong. */
int find_all(int (*find)(void *, void **), int64_t count, void **arrays, void **found)
{
    int status = 0;
    for (int64_t i = 0; i < count && !status; i++)
        status = find(arrays[i], &found[i]);
    return status;
}

/* out = a * b + c in one rounding, whatever the processor; `out` is `c`, `b`, or has nothing in common with them.
 * `a` is one number where `a_step` is 0. */
FUSED void fused_multiply_add(int64_t n, const float *a, int64_t a_step, const float *b, const float *c, float *out)
{
    if (a_step) {
        INDEPENDENT
        for (int64_t i = 0; i < n; i++) out[i] = fmaf(a[i], b[i], c[i]);
    } else {
        float factor = *a;
        INDEPENDENT
        for (int64_t i = 0; i < n; i++) out[i] = fmaf(factor, b[i], c[i]);
    }
}
