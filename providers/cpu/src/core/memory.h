// Memory of values whose size is known only when a call runs, and of arenas: blocks are kept for reuse, in size classes.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>

namespace opweave {

// What a call would need exceeds what the process may have; thrown before the system kills the process.
struct OutOfMemory : std::runtime_error { using std::runtime_error::runtime_error; };

// 64-byte aligned, with 64 readable bytes past its end; goes back to the cache with its last owner.
std::shared_ptr<void> cached_buffer(size_t nbytes);

// What all calls together may use: three quarters of the physical memory, or of the cgroup's limit where that is less,
// unless set.
size_t memory_limit();
void set_memory_limit(size_t nbytes);

// Returns the cached blocks to the system.
void trim_memory();

}  // namespace opweave
