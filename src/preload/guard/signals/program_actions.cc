#include "preload/guard/signals/program_actions.h"

namespace farside::preload {

SpinLock g_actions_lock;
KernelSigaction g_program_actions[kSignals] = {};

}  // namespace farside::preload
