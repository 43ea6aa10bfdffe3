#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/os.h"
#include "base/size.h"
#include "server/listen.h"
#include "server/metrics.h"
#include "server/packing_thread.h"
#include "server/server_handlers.h"
#include "server/serving_thread.h"

namespace farside::server {

struct Server::Impl {
  Impl(const ServerConfig& c, std::unique_ptr<Overflow> overflow)
      : config(c),
        state(c.memory, c.quota, c.grace_ns, c.compress, std::move(overflow),
              c.tokens.empty() ? single_token(c.token) : c.tokens) {
    state.ucx = c.ucx;
    if (c.controller) state.registry = std::make_unique<MemoryRegistry>();
    if (c.calls.host_program.empty()) return;
    state.calls = std::make_unique<CallService>(c.calls);
    call_threads = std::make_unique<CallThreads>(state.calls.get());
  }

  ServerConfig config;
  ServerState state;
  std::vector<Listener> listeners;
  std::unique_ptr<CallThreads> call_threads;  // null: the server executes no functions
  std::vector<std::unique_ptr<ServingThread>> threads;
  std::unique_ptr<PackingThread> packing;  // null: nothing is compressed
  uint16_t port = 0;
};

namespace {

Status check(const ServerConfig& config) {
  if (config.memory == 0 && !config.controller)
    return Status::error(EINVAL, "the server has no memory to lend; set --memory");
  if (config.listen.empty() && config.unix_path.empty()) {
    return Status::error(EINVAL, "no address to listen on; set --listen host:port or --unix path");
  }
  if (config.token.size() > wire::kMaxToken) {
    return Status::error(EINVAL, "the token is longer than {} bytes", wire::kMaxToken);
  }
  if (!config.calls.host_program.empty()) {
    if (Status s = sandbox::check_isolation(config.calls.host_program); !s.ok()) return s;
  }
  if (config.compress != Compression::kOff && (!config.calls.host_program.empty() || config.ucx.is_on()))
    return Status::error(EINVAL,
                         "pages that are compressed cannot be accessed by functions or UCX; give up one of the two");
  if (!config.overflow.path.empty() && config.compress == Compression::kOff)
    return Status::error(EINVAL,
                         "pages that are not compressed do not move to an overflow file; use --compress auto, and "
                         "neither --offload nor --ucx");
  if (config.workers == 0 || config.workers > 64) return Status::error(EINVAL, "workers must be 1 to 64");
  return {};
}

Result<std::unique_ptr<Overflow>> open_overflow(const ServerConfig& config) {
  if (config.overflow.path.empty()) return std::unique_ptr<Overflow>();
  auto file = OverflowFile::create(config.overflow.path, config.overflow.bytes);
  if (!file.ok()) return file.status();
  return std::make_unique<Overflow>(std::move(*file), config.memory);
}

}  // namespace

Status parse_overflow(std::string_view option, std::string_view text, OverflowConfig* out) {
  if (text.empty()) return {};
  size_t colon = text.rfind(':');
  Result<uint64_t> bytes = parse_size(std::string(text.substr(std::min(colon, text.size() - 1) + 1)));
  if (colon == 0 || colon == std::string_view::npos || !bytes.ok() || *bytes < wire::kSlabBytes)
    return Status::error(EINVAL, "{}={} is not valid; use PATH:SIZE with a size of 16M or more, as in /var/tmp:64G",
                         option, text);
  *out = {std::string(text.substr(0, colon)), align_up(*bytes, wire::kSlabBytes)};
  return {};
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { stop(); }

Result<std::unique_ptr<Server>> Server::start(const ServerConfig& config) {
  if (Status s = check(config); !s.ok()) return s;
  auto overflow = open_overflow(config);
  if (!overflow.ok()) return overflow.status();
  // On failure, stops what was started.
  std::unique_ptr<Server> server(new Server(std::make_unique<Impl>(config, std::move(*overflow))));
  Impl& impl = *server->impl_;
  if (!config.listen.empty()) {
    auto fd = listen_tcp(config.listen, &impl.port);
    if (!fd.ok()) return fd.status();
    impl.listeners.push_back({*fd, false, config.tls.get()});
  }
  if (!config.unix_path.empty()) {
    auto fd = listen_unix(config.unix_path, config.unix_for_all_users);
    if (!fd.ok()) return fd.status();
    impl.listeners.push_back({*fd, true, nullptr});
  }
  for (unsigned i = 0; i < config.workers; i++) {
    auto thread = ServingThread::start(impl.listeners, &impl.state, impl.call_threads.get());
    if (!thread.ok()) return thread.status();
    impl.threads.push_back(std::move(*thread));
  }
  if (config.compress != Compression::kOff)
    impl.packing = std::make_unique<PackingThread>(&impl.state.pool, config.compress_epoch_ns);
  return server;
}

void Server::stop() {
  impl_->packing.reset();
  impl_->threads.clear();
  if (impl_->call_threads) impl_->call_threads->stop();
  for (const Listener& l : impl_->listeners) {
    os::close(l.fd);
    if (l.is_unix) unlink(impl_->config.unix_path.c_str());
  }
  impl_->listeners.clear();
}

void Server::set_tokens(const std::vector<TokenEntry>& tokens) { impl_->state.tokens.replace(tokens); }

void Server::drain(bool on) {
  if (impl_->state.draining.exchange(on) == on) return;
  for (auto& thread : impl_->threads) thread->announce();
}

uint16_t Server::tcp_port() const { return impl_->port; }

ServerStats Server::stats() const {
  MemoryPool::Usage usage = impl_->state.pool.usage();
  wire::StatsReply s = collect_stats(usage, impl_->state.counters);
  return {s.clients,    s.regions,  s.snapshots, s.capacity_bytes, s.charged_bytes, s.stored_bytes,
          usage.packed, usage.zstd, usage.used,  usage.overflow,   s.reads,         s.writes,
          s.discards,   s.bytes_in, s.bytes_out, s.refused_tokens, s.bad_frames,    s.refused_requests};
}

Status Server::ready() const {
  if (!impl_->state.admission.has_room_for_regions())
    return Status::error(EMFILE, "{}", text_of(Admission::Refusal::kDescriptors));
  ServerStats now = stats();
  if (impl_->config.memory == 0 || now.reserved_bytes + wire::kSlabBytes <= now.capacity_bytes) return {};
  return Status::error(ENOMEM, "all memory is reserved");
}

void Server::append_metrics(Exposition* out) const { server::append_metrics(&impl_->state, out); }

}  // namespace farside::server
