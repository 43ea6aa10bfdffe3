#include "ucx/exporter.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "base/log.h"
#include "ucx/helper_protocol.h"
#include "ucx/polling.h"
#include "ucx/ucp_worker.h"

namespace farside::ucx {
namespace {

class Exporter {
 public:
  explicit Exporter(UcpWorker* worker) : worker_(*worker), ucp_(worker->ucp()), address_(worker->address()) {}

  void run() {
    Polling polling(&worker_, kControlFd);
    while (polling.next()) {
      while (take_request()) {}
      if (is_closed_) return;
    }
  }

 private:
  struct Slab {
    void* at;
    uint64_t bytes;
    ucp_mem_h memory;
  };

  // False: there is none.
  bool take_request() {
    ExportRequest request;
    ssize_t n = recv(kControlFd, &request, sizeof request, MSG_DONTWAIT);
    is_closed_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n != sizeof request) return false;
    if (request.bytes == 0) unshare(request.offset);
    else answer(request);
    return true;
  }

  void answer(const ExportRequest& request) {
    ExportReply reply = {};
    reply.offset = request.offset;
    reply.failed = !share(request, &reply.share);
    if (send(kControlFd, &reply, sizeof reply, MSG_NOSIGNAL) < 0) is_closed_ = true;
  }

  bool share(const ExportRequest& request, wire::ShareReply* reply) {
    void* at = mmap(nullptr, request.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, kGivenFd,
                    static_cast<off_t>(request.offset));
    if (at == MAP_FAILED) return false;
    Slab slab = {at, request.bytes, nullptr};
    if (map(&slab) && fill(slab, reply)) {
      slabs_[request.offset] = slab;
      return true;
    }
    release(slab);
    return false;
  }

  // Without pinning its pages: they need not be there.
  bool map(Slab* slab) {
    ucp_mem_map_params_t params = {};
    params.field_mask =
        UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.address = slab->at;
    params.length = slab->bytes;
    params.flags = UCP_MEM_MAP_NONBLOCK;
    return ucp_.ucp_mem_map(worker_.context(), &params, &slab->memory) == UCS_OK;
  }

  bool fill(const Slab& slab, wire::ShareReply* reply) {
    void* key = nullptr;
    size_t key_bytes = 0;
    if (ucp_.ucp_rkey_pack(worker_.context(), slab.memory, &key, &key_bytes) != UCS_OK) return false;
    bool fits = key_bytes <= sizeof reply->key && address_.size() <= sizeof reply->worker;
    if (fits) {
      memcpy(reply->key, key, key_bytes);
      memcpy(reply->worker, address_.data(), address_.size());
      reply->key_bytes = static_cast<uint32_t>(key_bytes);
      reply->worker_bytes = static_cast<uint32_t>(address_.size());
      reply->address = reinterpret_cast<uint64_t>(slab.at);
    }
    ucp_.ucp_rkey_buffer_release(key);
    return fits;
  }

  void unshare(uint64_t offset) {
    auto it = slabs_.find(offset);
    if (it == slabs_.end()) return;
    release(it->second);
    slabs_.erase(it);
  }

  void release(const Slab& slab) {
    if (slab.memory) ucp_.ucp_mem_unmap(worker_.context(), slab.memory);
    munmap(slab.at, slab.bytes);
  }

  UcpWorker& worker_;
  const Library& ucp_;
  const std::vector<std::byte> address_;
  std::unordered_map<uint64_t, Slab> slabs_;  // by offset in the region
  bool is_closed_ = false;
};

}  // namespace

int run_exporter(const char* transports) {
  auto worker = UcpWorker::start(transports, true);
  if (!worker.ok()) {
    log(LogLevel::kWarning, "UCX cannot share a client's memory: {}; its client uses TCP", worker.status().text());
    return 1;
  }
  Exporter(worker->get()).run();
  return 0;
}

}  // namespace farside::ucx
