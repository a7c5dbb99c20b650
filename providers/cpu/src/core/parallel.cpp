// One pool of threads for the process. A caller publishes a job and works on it itself; idle workers join the jobs that
// wait for help, so any number of calls may run at once without more threads than processors. Which tasks of a job are
// taken is one counter in the job, and a job lives until its last helper has left it: a late worker can touch neither a
// finished job nor the next one.
#include "core/parallel.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace opweave {

namespace {

constexpr int kSpins = 2000;  // about 20 to 50 microseconds: the gap between two instructions, not between two calls

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word, int count) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

struct Job {
    void (*body)(void*, int64_t);
    void* arg;
    int64_t tasks;
    int helpers_wanted;           // under the pool's mutex
    int helpers = 0;              // inside now; under the pool's mutex
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;     // written by the one that sets `failed`
    std::atomic<uint32_t> left{0};  // counts departures of helpers, for the caller to wait on

    void work() {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
            if (failed.load(std::memory_order_relaxed)) continue;
            try {
                body(arg, i);
            } catch (...) {
                if (!failed.exchange(true)) error = std::current_exception();
            }
        }
    }
};

thread_local bool inside = false;  // of a job: nested ones run in their caller

class Pool {
  public:
    explicit Pool(int workers) {
        for (int i = 0; i < workers; ++i) std::thread([this] { serve(); }).detach();
    }

    void run(int threads, int64_t tasks, void (*body)(void*, int64_t), void* arg) {
        Job job;
        job.body = body;
        job.arg = arg;
        job.tasks = tasks;
        job.helpers_wanted = static_cast<int>(std::min<int64_t>(threads, tasks)) - 1;
        publish(job);
        inside = true;
        job.work();
        inside = false;
        withdraw(job);
        if (job.failed) std::rethrow_exception(job.error);
    }

  private:
    void publish(Job& job) {
        {
            std::lock_guard lock(mutex_);
            open_.push_back(&job);
        }
        ticket_.fetch_add(1, std::memory_order_release);
        if (sleeping_.load() > 0) futex_wake(ticket_, job.helpers_wanted);
    }

    // Nobody joins any more; waits until those who did have left. They work on their last tasks: the wait is short.
    void withdraw(Job& job) {
        bool busy;
        {
            std::lock_guard lock(mutex_);
            open_.erase(std::remove(open_.begin(), open_.end(), &job), open_.end());
            busy = job.helpers > 0;
        }
        for (int spins = 0; busy; ++spins) {
            uint32_t seen = job.left.load(std::memory_order_acquire);
            {
                std::lock_guard lock(mutex_);
                busy = job.helpers > 0;
            }
            if (!busy) break;
            if (spins < kSpins) {
                for (int i = 0; i < 16 && job.left.load(std::memory_order_acquire) == seen; ++i) pause_briefly();
            } else {
                futex_wait(job.left, seen);
            }
        }
    }

    Job* join() {
        std::lock_guard lock(mutex_);
        for (Job* job : open_) {
            if (job->helpers_wanted == 0 || job->next.load(std::memory_order_relaxed) >= job->tasks) continue;
            --job->helpers_wanted;
            ++job->helpers;
            return job;
        }
        return nullptr;
    }

    // The job may vanish as soon as the mutex is free, so the caller is woken before.
    void leave(Job* job) {
        std::lock_guard lock(mutex_);
        --job->helpers;
        job->left.fetch_add(1, std::memory_order_release);
        futex_wake(job->left, 1);
    }

    void serve() {
        inside = true;
        for (int idle = 0;;) {
            uint32_t seen = ticket_.load(std::memory_order_acquire);
            if (Job* job = join()) {
                job->work();
                leave(job);
                idle = 0;
            } else {
                idle = wait(seen, idle);
            }
        }
    }

    // Spins while jobs come in quick succession, then sleeps until the next one.
    int wait(uint32_t seen, int idle) {
        while (idle < kSpins) {
            ++idle;
            pause_briefly();
            if (ticket_.load(std::memory_order_acquire) != seen) return 0;
        }
        sleeping_.fetch_add(1);
        if (ticket_.load(std::memory_order_acquire) == seen) futex_wait(ticket_, seen);
        sleeping_.fetch_sub(1);
        return 0;
    }

    std::mutex mutex_;
    std::vector<Job*> open_;
    std::atomic<uint32_t> ticket_{0};
    std::atomic<int> sleeping_{0};
};

std::atomic<Pool*> pool{nullptr};
std::mutex making;

// A forked child has none of the parent's threads: it makes a pool of its own; the parent's is left as it is.
void forget_pool() {
    pool.store(nullptr);
    new (&making) std::mutex;
    inside = false;
}

Pool& the_pool() {
    if (Pool* made = pool.load(std::memory_order_acquire)) return *made;
    std::lock_guard lock(making);
    if (Pool* made = pool.load()) return *made;
    static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
    (void)registered;
    auto* made = new Pool(usable_threads() - 1);  // lives as long as the process: its threads may still sleep in it
    pool.store(made, std::memory_order_release);
    return *made;
}

// CPUs that the cgroup's quota allows, rounded up; INT_MAX without a quota.
int quota() {
    double limit = 0, period = 0;
    std::string text;
    if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> text >> period && text != "max") limit = std::stod(text);
    else if (std::ifstream v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); v1 >> limit)
        std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
    return limit > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(limit / period))) : INT_MAX;
}

}  // namespace

int usable_threads() {
    cpu_set_t set;
    int mask = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    static const int allowed = quota();
    return std::max(1, std::min(mask, allowed));
}

void parallel_run(int threads, int64_t tasks, void (*body)(void*, int64_t), void* arg) {
    if (threads <= 1 || tasks <= 1 || inside) {
        for (int64_t i = 0; i < tasks; ++i) body(arg, i);
        return;
    }
    the_pool().run(threads, tasks, body, arg);
}

}  // namespace opweave
