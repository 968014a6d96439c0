// Names of the kernels of renewal.cuh.
#pragma once

#include "gpu/kernel.h"

namespace loader {

LOADER_KERNEL(ForgetUses, "features/cuda/renewal.cuh", "forget_uses")
LOADER_KERNEL(NoteUses, "features/cuda/renewal.cuh", "note_uses")
LOADER_KERNEL(AdvanceUses, "features/cuda/renewal.cuh", "advance_uses")
LOADER_KERNEL(CountClasses, "features/cuda/renewal.cuh", "count_classes")
LOADER_KERNEL(ChooseRows, "features/cuda/renewal.cuh", "choose_rows")
LOADER_KERNEL(MoveSlots, "features/cuda/renewal.cuh", "move_slots")
LOADER_KERNEL(CopyRows, "features/cuda/renewal.cuh", "copy_rows")  // <Int>

}  // namespace loader
