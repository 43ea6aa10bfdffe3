// Chooses the kind of store for a configuration.
#pragma once
#include <memory>

#include "remote/remote_store.h"

namespace farside::remote {

// Connects to each server, authenticates, and creates an empty region. Fails within 5 seconds for each server that
// does not reply; the text of the status names the server and what to do. Ordinary code.
Result<std::unique_ptr<RemoteStore>> connect_store(const StoreConfig& config);

}  // namespace farside::remote
