// Names of UCX's transports, as "rc_verbs/mlx5_0:1".
#pragma once
#include <string_view>

namespace farside::ucx {

// A transport of a network card with RDMA.
inline bool is_of_card(std::string_view transport) {
  return transport.starts_with("rc_") || transport.starts_with("dc_") || transport.starts_with("ud_");
}

}  // namespace farside::ucx
