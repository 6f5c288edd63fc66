/* Has the system back memory before it is needed: a page's first write is a fault, which costs a
 * pass as much as the keys and values that it writes there. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#define PAGE 4096

typedef struct {
    char *first;
    int64_t num_planes, stride, num_bytes;
} Area;

/* Whoever writes there meanwhile is not disturbed: a byte that is 0 is set to 0, another stays. */
static void touch(char *byte) {
    char zero = 0;
    __atomic_compare_exchange_n(byte, &zero, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Of the lowest priority: it takes what nobody else wants, and who does comes first at once. */
static void *touch_area(void *of) {
    const Area *area = of;
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_IDLE, &none);
    for (int64_t begin = 0; begin < area->num_bytes; begin += PAGE) {
        int64_t end = begin + PAGE < area->num_bytes ? begin + PAGE : area->num_bytes;
        for (int64_t plane = 0; plane < area->num_planes; plane++) {
            char *bytes = area->first + plane * area->stride;
            touch(bytes + begin);
            touch(bytes + end - 1); /* the part need not begin where a page does */
        }
    }
    return 0;
}

/* Every page of `num_bytes` behind `first` and as many in each of the planes `stride` bytes apart.
 * Returns when that is done. A thread of its own does it: who has the lowest priority keeps it. */
void specdec_touch(char *first, int64_t num_planes, int64_t stride, int64_t num_bytes) {
    Area area = {first, num_planes, stride, num_bytes};
    pthread_t thread;
    if (pthread_create(&thread, 0, touch_area, &area) == 0) {
        pthread_join(thread, 0);
    }
}
