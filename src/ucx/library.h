// The functions of libucp, loaded at run time: Farside runs where UCX is not installed. Used by farside-ucx only.
#pragma once
#include <ucp/api/ucp.h>

#include "base/status.h"

namespace farside::ucx {

#define FARSIDE_UCP_FUNCTIONS(F) \
  F(ucp_get_version_string)      \
  F(ucp_config_read)             \
  F(ucp_config_release)          \
  F(ucp_init_version)            \
  F(ucp_cleanup)                 \
  F(ucp_context_print_info)      \
  F(ucp_worker_create)           \
  F(ucp_worker_destroy)          \
  F(ucp_worker_get_address)      \
  F(ucp_worker_release_address)  \
  F(ucp_worker_get_efd)          \
  F(ucp_worker_arm)              \
  F(ucp_worker_progress)         \
  F(ucp_mem_map)                 \
  F(ucp_mem_unmap)               \
  F(ucp_rkey_pack)               \
  F(ucp_rkey_buffer_release)     \
  F(ucp_ep_create)               \
  F(ucp_ep_close_nbx)            \
  F(ucp_ep_flush_nbx)            \
  F(ucp_ep_rkey_unpack)          \
  F(ucp_rkey_destroy)            \
  F(ucp_get_nbx)                 \
  F(ucp_put_nbx)                 \
  F(ucp_request_free)

struct Library {
#define FARSIDE_MEMBER(name) decltype(&::name) name;
  FARSIDE_UCP_FUNCTIONS(FARSIDE_MEMBER)
#undef FARSIDE_MEMBER
  decltype(&::ucs_status_string) ucs_status_string;
};

// Loads it once. The status has the text of the dynamic linker.
Result<const Library*> library();

}  // namespace farside::ucx
