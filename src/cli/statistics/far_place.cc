#include "cli/statistics/far_place.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <string>

#include "remote/address.h"

namespace farside::cli {
namespace {

bool same_host(const sockaddr* a, const sockaddr_storage& b) {
  if (!a || a->sa_family != b.ss_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(&b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 && memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                                            &reinterpret_cast<const sockaddr_in6*>(&b)->sin6_addr, 16) == 0;
}

// Whether an interface of this machine has the address.
bool is_own(const sockaddr_storage& address) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return false;
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, freeifaddrs);
  for (ifaddrs* at = first; at; at = at->ifa_next) {
    if (same_host(at->ifa_addr, address)) return true;
  }
  return false;
}

// A controller only lists servers, which may be anywhere.
bool is_on_this_machine(const std::string& text, const Options& options) {
  auto address = remote::parse_address(text.c_str(), {.tls = options.tls_relay, .ucx = options.ucx_relay});
  if (!address.ok() || address->is_pool) return false;
  return address->is_shm() || is_own(address->endpoint.address);
}

}  // namespace

FarPlace far_place(const Options& options) {
  std::string_view all = options.far_address;
  if (all.empty()) return FarPlace::kThisMachine;
  if (all.starts_with("file:")) return FarPlace::kFile;
  std::istringstream addresses{std::string(all)};
  for (std::string address; std::getline(addresses, address, ',');) {
    if (is_on_this_machine(address, options)) return FarPlace::kThisMachine;
  }
  return FarPlace::kElsewhere;
}

}  // namespace farside::cli
