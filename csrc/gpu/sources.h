// The headers that kernels are compiled from, inside the core: it is all that is needed at run time.
#pragma once

namespace loader::gpu {

struct Source {
  const char *name, *text;  // the name that it is included by
};

extern const Source kSources[];  // ends with a name that is null

}  // namespace loader::gpu
