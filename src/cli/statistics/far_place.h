// Where the far memory of a run is: whether its near memory that was saved is real memory of this machine.
#pragma once
#include "abi/options.h"

namespace farside::cli {

enum class FarPlace { kThisMachine, kFile, kElsewhere };

// kThisMachine: at least one of the named servers, or the run's own. Resolves host names.
FarPlace far_place(const Options& options);

}  // namespace farside::cli
