#include "remote/connect.h"

#include <cstring>

#include "remote/file_store.h"
#include "remote/pool_store.h"
#include "remote/server_store.h"

namespace farside::remote {

Result<std::unique_ptr<RemoteStore>> connect_store(const StoreConfig& config) {
  if (strchr(config.address, ',') || config.replicas > 1) return PoolStore::connect(config);
  Result<Address> address = parse_address(config.address, config.relays);
  if (!address.ok()) return address.status();
  if (address->is_pool) return PoolStore::connect(config);
  if (address->is_file()) {
    auto store = FileStore::connect(*address, config);
    if (!store.ok()) return store.status();
    return std::unique_ptr<RemoteStore>(std::move(*store));
  }
  auto store = ServerStore::connect(*address, config);
  if (!store.ok()) return store.status();
  return std::unique_ptr<RemoteStore>(std::move(*store));
}

}  // namespace farside::remote
