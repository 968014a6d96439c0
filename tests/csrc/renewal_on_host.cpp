// The cache that is renewed as a module of the host: bindings and kernels as they are, with a stand-in for
// CUDA.
#include "device_code.h"
// The stand-in above comes first.
#include "features/cuda/renewal.cuh"
#include "features/cuda/renewal_kernels.h"

namespace loader::gpu {

template <>
struct Compiled<ForgetUses> {
  static constexpr auto* function = forget_uses;
};
template <>
struct Compiled<NoteUses> {
  static constexpr auto* function = note_uses;
};
template <>
struct Compiled<AdvanceUses> {
  static constexpr auto* function = advance_uses;
};
template <>
struct Compiled<CountClasses> {
  static constexpr auto* function = count_classes;
};
template <>
struct Compiled<ChooseRows> {
  static constexpr auto* function = choose_rows;
};
template <>
struct Compiled<MoveSlots> {
  static constexpr auto* function = move_slots;
};
template <int Bytes>
struct Compiled<CopyRows, Int<Bytes>> {
  static constexpr auto* function = copy_rows<Bytes>;
};

}  // namespace loader::gpu

#include "bindings/renewal_cuda.cpp"
#include "features/cuda/renewal.cpp"

PYBIND11_MODULE(renewal_on_host, m) {
  on_host::machine.multiprocessors = {4};
  loader::bind_renewal_cuda(m);
  m.def("refuse_launch", [](int after) { on_host::machine.launches_until_refused = after; });
}
