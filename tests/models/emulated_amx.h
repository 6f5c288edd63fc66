/* The instructions of AMX that kernels.c uses, in plain C: its code for AMX runs on any machine.
 *
 * Included before kernels.c. Tiles are all of 16 rows of 64 bytes, as kernels.c sets them up. A sum
 * takes its pairs in their order, the even one first; the processor's own rounding may differ.
 */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define __AMX_BF16__ 1
/* The system is not asked for tiles; idle threads sleep as ever. */
#define syscall(number, ...) \
    ((number) == SYS_arch_prctl ? 0 : (syscall)(number __VA_OPT__(, ) __VA_ARGS__))

static _Thread_local uint32_t emulated_tiles[8][16][16];

static inline void emulated_load(int tile, const void *from, long stride) {
    for (int row = 0; row < 16; row++)
        memcpy(emulated_tiles[tile][row], (const char *)from + row * stride, 64);
}

static inline void emulated_store(int tile, void *to, long stride) {
    for (int row = 0; row < 16; row++)
        memcpy((char *)to + row * stride, emulated_tiles[tile][row], 64);
}

static inline float emulated_number(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline void emulated_products(int sums, int left, int right) {
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++) {
            float sum = emulated_number(emulated_tiles[sums][row][column]);
            for (int pair = 0; pair < 16; pair++) {
                uint32_t a = emulated_tiles[left][row][pair];
                uint32_t b = emulated_tiles[right][pair][column];
                sum += emulated_number(a << 16) * emulated_number(b << 16);
                sum += emulated_number(a & 0xffff0000) * emulated_number(b & 0xffff0000);
            }
            memcpy(&emulated_tiles[sums][row][column], &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) ((void)(config))
#define _tile_release() ((void)0)
#define _tile_zero(tile) memset(emulated_tiles[tile], 0, sizeof emulated_tiles[tile])
#define _tile_loadd(tile, from, stride) emulated_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated_store(tile, to, stride)
#define _tile_dpbf16ps(sums, left, right) emulated_products(sums, left, right)
