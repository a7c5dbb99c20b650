#include "core/kernel.h"

#include <cstdlib>
#include <mutex>
#include <new>

namespace opweave {

namespace {
template <class T> const T* find(const Attrs& attrs, const std::string& name) {
    auto it = attrs.values.find(name);
    return it == attrs.values.end() ? nullptr : std::get_if<T>(&it->second);
}
}  // namespace

int64_t Attrs::integer(const std::string& name, int64_t otherwise) const {
    auto* v = find<int64_t>(*this, name);
    return v ? *v : otherwise;
}
double Attrs::real(const std::string& name, double otherwise) const {
    if (auto* v = find<double>(*this, name)) return *v;
    auto* i = find<int64_t>(*this, name);
    return i ? static_cast<double>(*i) : otherwise;
}
std::string Attrs::text(const std::string& name, const std::string& otherwise) const {
    auto* v = find<std::string>(*this, name);
    return v ? *v : otherwise;
}
std::vector<int64_t> Attrs::integers(const std::string& name, std::vector<int64_t> otherwise) const {
    auto* v = find<std::vector<int64_t>>(*this, name);
    return v ? *v : otherwise;
}
std::vector<double> Attrs::reals(const std::string& name, std::vector<double> otherwise) const {
    if (auto* v = find<std::vector<double>>(*this, name)) return *v;
    if (auto* i = find<std::vector<int64_t>>(*this, name)) return {i->begin(), i->end()};
    return otherwise;
}
std::vector<std::string> Attrs::texts(const std::string& name) const {
    auto* v = find<std::vector<std::string>>(*this, name);
    return v ? *v : std::vector<std::string>{};
}
const Tensor* Attrs::tensor(const std::string& name) const {
    auto* v = find<OwnedTensor>(*this, name);
    return v ? &v->tensor : nullptr;
}

void Registry::add(const std::string& op, Factory factory, const std::string& domain) {
    factories_[{domain, op}] = std::move(factory);
}
std::unique_ptr<Kernel> Registry::make(const NodeSpec& spec) const {
    auto it = factories_.find({spec.domain, spec.op});
    if (it == factories_.end()) throw Unsupported("no native kernel");
    return it->second(spec);
}
std::vector<std::pair<std::string, std::string>> Registry::operators() const {
    std::vector<std::pair<std::string, std::string>> names;
    for (auto& entry : factories_) names.push_back(entry.first);
    return names;
}

std::shared_ptr<const void> packed(const std::string& content_key, const std::string& scheme,
                                   const std::function<std::shared_ptr<const void>()>& make) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<const void>> store;
    if (content_key.empty()) return make();
    std::string key = scheme + "/" + content_key;
    std::lock_guard lock(mutex);
    if (auto found = store[key].lock()) return found;
    auto made = make();
    store[key] = made;
    return made;
}

std::shared_ptr<void> aligned_buffer(size_t nbytes) {
    size_t rounded = (nbytes + 64 + 63) / 64 * 64;
    void* p = std::aligned_alloc(64, rounded);
    if (!p) throw std::bad_alloc();
    return std::shared_ptr<void>(p, std::free);
}

}  // namespace opweave
