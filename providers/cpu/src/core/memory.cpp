#include "core/memory.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace opweave {

namespace {

constexpr size_t kMaxCached = size_t{256} << 20;  // bytes kept for reuse
std::atomic<size_t> in_use{0};

// Sizes are rounded up to an eighth of their power of two, so that a block is at most an eighth too large.
size_t size_class(size_t nbytes) {
    size_t n = nbytes + 64;
    if (n <= 512) return (n + 63) / 64 * 64;
    size_t step = size_t{1} << (63 - __builtin_clzll(n) - 3);
    return (n + step - 1) / step * step;
}

struct Cache {
    std::mutex mutex;
    std::map<size_t, std::vector<void*>> blocks;
    size_t nbytes = 0;

    void* take(size_t size) {
        std::lock_guard lock(mutex);
        auto it = blocks.find(size);
        if (it == blocks.end() || it->second.empty()) return nullptr;
        void* p = it->second.back();
        it->second.pop_back();
        nbytes -= size;
        return p;
    }
    bool give(void* p, size_t size) {
        std::lock_guard lock(mutex);
        if (nbytes + size > kMaxCached) return false;
        blocks[size].push_back(p);
        nbytes += size;
        return true;
    }
    void clear() {
        std::lock_guard lock(mutex);
        for (auto& [size, list] : blocks)
            for (void* p : list) std::free(p);
        blocks.clear();
        nbytes = 0;
    }
};

Cache& cache() {
    static Cache* one = new Cache;  // outlives every static owner of a block
    return *one;
}

size_t cgroup_limit() {
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        std::ifstream file(path);
        size_t limit = 0;
        if (file >> limit && limit > 0) return limit;
    }
    return SIZE_MAX;
}

[[noreturn]] void refuse(size_t nbytes) {
    throw OutOfMemory("needs " + std::to_string(nbytes) + " bytes of memory with " + std::to_string(in_use.load()) +
                      " in use, over the limit of " + std::to_string(memory_limit()));
}

void release(void* p, size_t size) {
    in_use.fetch_sub(size, std::memory_order_relaxed);
    if (!cache().give(p, size)) std::free(p);
}

std::atomic<size_t>& limit() {
    static std::atomic<size_t> bytes{[] {
        size_t physical = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
        return std::min(physical, cgroup_limit()) / 4 * 3;
    }()};
    return bytes;
}

}  // namespace

size_t memory_limit() { return limit().load(std::memory_order_relaxed); }
void set_memory_limit(size_t nbytes) { limit().store(nbytes, std::memory_order_relaxed); }

std::shared_ptr<void> cached_buffer(size_t nbytes) {
    if (nbytes > memory_limit()) refuse(nbytes);
    size_t size = size_class(nbytes);
    if (in_use.fetch_add(size, std::memory_order_relaxed) + size > memory_limit()) {
        in_use.fetch_sub(size, std::memory_order_relaxed);
        refuse(nbytes);
    }
    void* p = cache().take(size);
    if (!p) p = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p) {
        in_use.fetch_sub(size, std::memory_order_relaxed);
        refuse(nbytes);
    }
    return std::shared_ptr<void>(p, [size](void* q) { release(q, size); });
}

void trim_memory() { cache().clear(); }

}  // namespace opweave
