#include "core/parallel.h"

#include <sched.h>

namespace opweave {

int usable_threads() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void parallel_run(int, int64_t tasks, void (*body)(void*, int64_t), void* arg) {
    for (int64_t i = 0; i < tasks; ++i) body(arg, i);
}

}  // namespace opweave
