#include "walks/cpu/walk.h"

#include <algorithm>
#include <type_traits>

#include "walks/cpu/first_order_walkers.h"
#include "walks/cpu/second_order_walkers.h"
#include "walks/weighted.h"

namespace loader {
namespace {

constexpr int64_t kPartSteps = 1 << 14;  // less is not worth another thread

}  // namespace

template <class Law, class Lists>
void walk_on_cpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, ThreadPool& pool) {
  if (out.length == 0) {
    std::copy_n(out.starts, out.count, out.vertices);
    return;
  }
  using Together =
      std::conditional_t<Law::kSecond, SecondOrderWalkers<Law, Lists>, FirstOrderWalkers<Law, Lists>>;
  pool.share(out.count, std::max<int64_t>(kPartSteps / out.length, 64),
             [&](int64_t first, int64_t last) { Together(law, lists, out).walk(first, last); });
}

#define INSTANTIATE_LAW(LISTS, P, N, PROPOSAL, COIN, SECOND)                            \
  template void walk_on_cpu(const WalkLaw<PROPOSAL, COIN, SECOND>&, const LISTS<P, N>&, \
                            const WalkOut<P, N>&, ThreadPool&);
#define INSTANTIATE_LAWS(P, N, PROPOSAL)                   \
  INSTANTIATE_LAW(WalkLists, P, N, PROPOSAL, false, false) \
  INSTANTIATE_LAW(WalkLists, P, N, PROPOSAL, true, false)  \
  INSTANTIATE_LAW(WalkLists, P, N, PROPOSAL, false, true)  \
  INSTANTIATE_LAW(WalkLists, P, N, PROPOSAL, true, true)
#define INSTANTIATE(P, N)                                             \
  INSTANTIATE_LAWS(P, N, UniformProposal)                             \
  INSTANTIATE_LAWS(P, N, WeightedProposal<N>)                         \
  INSTANTIATE_LAW(MetapathLists, P, N, UniformProposal, false, false) \
  INSTANTIATE_LAW(MetapathLists, P, N, UniformProposal, true, false)

INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)

}  // namespace loader
