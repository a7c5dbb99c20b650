// Work sharing inside one call. One pool serves the whole process; a call takes as many of its threads as it may use.
#pragma once

#include <cstdint>
#include <type_traits>

namespace opweave {

// Runs body(arg, i) for i in [0, tasks) on at most `threads` threads, the caller among them; returns when all are done.
// Nested calls and calls with threads <= 1 run in the caller. The first exception thrown by a task is rethrown.
void parallel_run(int threads, int64_t tasks, void (*body)(void*, int64_t), void* arg);

// How many threads this process may use: the affinity mask, cut by a cgroup CPU quota.
int usable_threads();

template <class F> void parallel_for(int threads, int64_t tasks, F&& f) {
    if (threads <= 1 || tasks <= 1) {
        for (int64_t i = 0; i < tasks; ++i) f(i);
        return;
    }
    using Body = std::remove_reference_t<F>;
    parallel_run(threads, tasks, [](void* arg, int64_t i) { (*static_cast<Body*>(arg))(i); },
                 const_cast<void*>(static_cast<const void*>(&f)));
}

// Splits [0, n) into pieces of at least `grain` items: f(begin, end).
template <class F> void parallel_ranges(int threads, int64_t n, int64_t grain, F&& f) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    int64_t pieces = (n + grain - 1) / grain;
    if (pieces > 4 * static_cast<int64_t>(threads)) pieces = 4 * threads;
    if (threads <= 1 || pieces <= 1) {
        f(int64_t{0}, n);
        return;
    }
    parallel_for(threads, pieces, [&](int64_t i) { f(n * i / pieces, n * (i + 1) / pieces); });
}

}  // namespace opweave
