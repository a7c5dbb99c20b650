// Slots that hold Python objects: strings, sequences, maps.
#pragma once

#include "bindings/convert.h"
#include "core/program.h"

namespace opweave {

// Keeps a reference, which whoever drops it last gives back under the GIL. Call it with the GIL held.
std::shared_ptr<void> hold(nb::handle object);
void set_object(Slot& slot, nb::handle object);

// ai.onnx.ml.ZipMap: rows of numbers, one a class, become dictionaries from the classes' labels to floats.
class ZipMap final : public Callable {
  public:
    explicit ZipMap(nb::list labels) : labels_(hold(labels)), count_(static_cast<int64_t>(nb::len(labels))) {}
    void run(const std::vector<const Slot*>& in, const std::vector<Slot*>& out) const override;
    bool native() const override { return true; }

  private:
    nb::object dictionary(const float* row) const;
    std::shared_ptr<void> labels_;  // a list
    int64_t count_;
};
void bind_objects(nb::module_& m);

}  // namespace opweave
