#include "induced/cpu/induced.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace loader {
namespace {

constexpr int64_t kPartRows = 256;  // lists that a thread takes at once, at least
constexpr int kMoreBits = 2;        // 4 bits for each slot, so 8 or more for each vertex

// The places of the given vertices by key, in one table with open addresses. A bit for each of many hash
// values says first whether a key can be there: most are not, and the bits are a 32nd of the table.
class Places {
 public:
  explicit Places(int64_t entries)
      : bits_(table_bits(entries)),
        slots_(size_t{1} << bits_, {kFreeSlot, 0}),
        known_(size_t{1} << (bits_ + kMoreBits - 6), 0) {}

  // Whether the key was not there.
  bool put(uint64_t key, int64_t place) {
    Slot& slot = slots_[find(key)];
    if (slot.key == key) return false;
    slot = {key, place};
    const uint64_t at = first_slot(key, bits_ + kMoreBits);
    known_[at / 64] |= uint64_t{1} << at % 64;
    return true;
  }

  // The place, or -1.
  int64_t of(uint64_t key) const {
    const uint64_t at = first_slot(key, bits_ + kMoreBits);
    if (!(known_[at / 64] >> at % 64 & 1)) return -1;
    const Slot& slot = slots_[find(key)];
    return slot.key == key ? slot.place : -1;
  }

 private:
  struct Slot {
    uint64_t key;
    int64_t place;
  };

  // The slot of the key, or the free one where it belongs.
  size_t find(uint64_t key) const {
    const uint64_t mask = (uint64_t{1} << bits_) - 1;
    uint64_t at = first_slot(key, bits_);
    while (slots_[at].key != kFreeSlot && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  int bits_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> known_;
};

// Adds the edges of the asked lists [begin, end).
template <typename P, typename N>
void look(const InducedAsked<P, N>& asked, const Places& places, int64_t num_edges, int64_t begin,
          int64_t end, InducedPart& part) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = asked.row(i);
    const ListOf<P> list = asked.lists.list({row});
    if (list.begin < 0 || list.end < list.begin || list.end > num_edges)
      throw std::invalid_argument("list " + std::to_string(row) + " has entries " +
                                  std::to_string(list.begin) + " to " + std::to_string(list.end) + " of " +
                                  std::to_string(num_edges));
    const int32_t set = asked.set_of_row(i);
    const auto key_at = [&](P at) { return asked.key(set, static_cast<int64_t>(asked.lists.read(at))); };
    for (P at = list.begin; at < list.end; ++at) {
      if (!asked.is_id(static_cast<int64_t>(asked.lists.read(at)))) continue;
      const int64_t source = places.of(key_at(at));
      if (source < 0) continue;
      part.sources.push_back(source);
      part.rows.push_back(i);
      part.edges.push_back(at);
    }
  }
}

}  // namespace

template <typename P, typename N>
InducedFound induced_on_cpu(const InducedAsked<P, N>& asked, int64_t num_edges, Workers& workers) {
  InducedFound found;
  Places places(asked.num_nodes);
  uint64_t repeated = kFreeSlot;
  for (int64_t i = 0; i < asked.num_nodes; ++i) {
    const uint64_t key = asked.key(asked.sets ? asked.sets[i] : 0, static_cast<int64_t>(asked.nodes[i]));
    if (!places.put(key, i)) repeated = std::min(repeated, key);
  }
  if (repeated != kFreeSlot) {
    found.repeated = static_cast<int64_t>(repeated);
    return found;
  }
  const int64_t rows = std::max(kPartRows, asked.num_rows / kMaxParts + 1);
  const int64_t parts = (asked.num_rows + rows - 1) / rows;
  found.parts.resize(static_cast<size_t>(parts));
  workers.each(parts, [&](int part, int) {
    const int64_t begin = part * rows;
    look(asked, places, num_edges, begin, std::min(begin + rows, asked.num_rows), found.parts[part]);
  });
  return found;
}

template InducedFound induced_on_cpu(const InducedAsked<int32_t, int32_t>&, int64_t, Workers&);
template InducedFound induced_on_cpu(const InducedAsked<int64_t, int32_t>&, int64_t, Workers&);
template InducedFound induced_on_cpu(const InducedAsked<int64_t, int64_t>&, int64_t, Workers&);

}  // namespace loader
