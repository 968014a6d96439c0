// Tables to pick by weight from, made once for all lists of a graph (sampler/weighted.h reads them).
//
// How the weights w_0, .., w_(d-1) of a list become masses m_0, .., m_(d-1), integers that sum to d * 2^32:
//
//   top     the least power of two that exceeds every w_i
//   sum     of w_i / top, in double precision, one after the other
//   bits    62 - e, for the least e with sum < 2^e
//   a_i     floor(w_i / top * 2^bits): a_0 + .. + a_(d-1) = A < 2^63
//   m_i     1 + floor(A_(i+1) * d * (2^32 - 1) / A) - floor(A_i * d * (2^32 - 1) / A), A_i = a_0 + .. +
//   a_(i-1)
//
// All steps are exact, but for the rounding of `sum`, which IEEE 754 specifies. So an entry is drawn with a
// probability that deviates from w_i over the sum of the weights by at most
//
//   (2^-31 + d * 2^-61) * max(1, mean of the weights / w_i)
//
// of itself: by 5e-10 for an entry of average weight, by 1 % for one that is 20 million times lighter.
// Entries that are lighter still have a mass of 1 or 2: they are drawn too often rather than never.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel.h"
#include "sampler/weighted.h"

namespace loader {

// The tables of `num_lists` lists, of positive and finite weights: cells and ends [indptr[num_lists]]. W is
// float or double, P the type of `indptr`.
template <typename P, typename W>
void make_tables(const P* indptr, int64_t num_lists, const W* weights, AliasCell* cells, uint64_t* ends,
                 ThreadPool& pool);

// The positions of each list from the heaviest to the lightest, of equal ones in list order, to `order`.
template <typename P, typename W>
void order_by_weight(const P* indptr, int64_t num_lists, const W* weights, uint32_t* order, ThreadPool& pool);

}  // namespace loader
