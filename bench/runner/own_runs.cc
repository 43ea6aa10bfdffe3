#include "bench/runner/own_runs.h"

#include "launch/installation.h"
#include "launch/preload.h"

namespace farside::bench {

Result<OwnRuns> OwnRuns::prepare(const Setup& setup) {
  auto directory = PrivateDirectory::create();
  if (!directory.ok()) return directory.status();
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  Status handed = hand_over_token(setup.server().token());
  if (!handed.ok()) return handed;
  return OwnRuns{installation->farside(), std::move(*directory)};
}

}  // namespace farside::bench
