#include "ucx/ucp_worker.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "ucx/transports.h"

namespace farside::ucx {
namespace {

// UCX takes its settings from the environment. Values that the user has set win, except where correctness depends on
// it.
void set_environment(const char* transports, bool for_remote_access) {
  constexpr int kKeep = 0, kReplace = 1;
  setenv("UCX_TLS", transports, kReplace);
  setenv("UCX_WARN_UNUSED_ENV_VARS", "n", kReplace);
  setenv("UCX_LOG_LEVEL", "fatal", kKeep);  // a peer that ends is no error; failures have messages of Farside's
  setenv("UCX_HANDLE_ERRORS", "none", kReplace);
  setenv("UCX_VFS_ENABLE", "n", kReplace);
  if (for_remote_access) setenv("UCX_IB_REG_METHODS", "odp", kReplace);
  else unsetenv("UCX_IB_REG_METHODS");
}

// Lines as "#      resource 1  :  md 1  dev 1  flags -- tcp/lo".
std::vector<std::string> transports_of(const UcpWorker& worker) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (!stream) return {};
  worker.ucp().ucp_context_print_info(worker.context(), stream);
  fclose(stream);
  std::istringstream lines(text);
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    size_t flags = line.find(" flags ");
    size_t name = flags == line.npos ? line.npos : line.rfind(' ');
    if (name != line.npos && line.find('/', name) != line.npos) found.push_back(line.substr(name + 1));
  }
  free(text);
  return found;
}

bool any_card(const std::vector<std::string>& transports) {
  for (const std::string& t : transports) {
    if (is_of_card(t)) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<UcpWorker>> UcpWorker::start(const char* transports, bool for_remote_access) {
  set_environment(transports, for_remote_access);
  auto loaded = library();
  if (!loaded.ok()) return loaded.status();
  std::unique_ptr<UcpWorker> worker(new UcpWorker(**loaded));
  ucs_status_t status = worker->open();
  if (status == UCS_OK) return worker;
  return Status::error(ENODEV, "{}", worker->text_of(status));
}

ucs_status_t UcpWorker::open() {
  ucp_config_t* config = nullptr;
  if (ucs_status_t s = ucp_.ucp_config_read(nullptr, nullptr, &config); s != UCS_OK) return s;
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  ucs_status_t s = ucp_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucp_.ucp_config_release(config);
  if (s != UCS_OK) return s;
  ucp_worker_params_t worker = {};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SINGLE;
  if (s = ucp_.ucp_worker_create(context_, &worker, &worker_); s != UCS_OK) return s;
  return ucp_.ucp_worker_get_efd(worker_, &event_fd_);
}

UcpWorker::~UcpWorker() {
  if (worker_) ucp_.ucp_worker_destroy(worker_);
  if (context_) ucp_.ucp_cleanup(context_);
}

std::vector<std::byte> UcpWorker::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (ucp_.ucp_worker_get_address(worker_, &address, &bytes) != UCS_OK) return {};
  std::vector<std::byte> copy(bytes);
  memcpy(copy.data(), address, bytes);
  ucp_.ucp_worker_release_address(worker_, address);
  return copy;
}

Result<std::string> describe(const char* transports) {
  auto pinned = UcpWorker::start(transports, false);
  if (!pinned.ok()) return pinned.status();
  auto on_demand = UcpWorker::start(transports, true);
  std::vector<std::string> found = transports_of(**pinned);
  bool faults = on_demand.ok() && any_card(transports_of(**on_demand));
  std::string text = fmt::format("version {}\ncard {}\non-demand {}\n", (*pinned)->ucp().ucp_get_version_string(),
                                 any_card(found) ? "yes" : "no", faults ? "yes" : "no");
  for (const std::string& transport : found) text += fmt::format("transport {}\n", transport);
  return text;
}

}  // namespace farside::ucx
