// A peer of UCX that keeps the key of a client's memory: it reads with it while access is granted, and not afterwards.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/clock.h"
#include "base/os.h"
#include "server/regions/share.h"
#include "ucx/ucp_worker.h"

#if defined(__SANITIZE_THREAD__)
// UCX synchronizes its threads by code that the sanitizer does not see.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif

namespace farside::server {
namespace {

constexpr uint64_t kWithinNs = 20'000'000'000;
constexpr char kSecret[] = "of the client";

// Connections of a process to the worker of a shared slab.
class Peer {
 public:
  explicit Peer(const wire::ShareReply& share)
      : share_(share), worker_(std::move(*ucx::UcpWorker::start("tcp", false))) {}

  bool connect() {
    ucp_ep_params_t params = {};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(share_.worker);
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void*, ucp_ep_h, ucs_status_t) {}, nullptr};
    return ucp().ucp_ep_create(worker_->get(), &params, &endpoint_) == UCS_OK &&
           ucp().ucp_ep_rkey_unpack(endpoint_, share_.key, &key_) == UCS_OK;
  }

  // Whether the begin of the slab can be read within the time, and is the secret.
  bool reads_secret(uint64_t within_ns) {
    char data[sizeof kSecret] = {};
    ucp_request_param_t none = {};
    void* request = ucp().ucp_get_nbx(endpoint_, data, sizeof data, share_.address, key_, &none);
    if (UCS_PTR_IS_ERR(request)) return false;
    if (request && complete(request, within_ns) != UCS_OK) return false;
    return memcmp(data, kSecret, sizeof data) == 0;
  }

 private:
  const ucx::Library& ucp() const { return worker_->ucp(); }
  // A get is complete after a flush; the flush of an endpoint whose peer is gone fails.
  ucs_status_t complete(void* get, uint64_t within_ns) {
    struct Flushed {
      bool done = false;
      ucs_status_t status = UCS_INPROGRESS;
    } flushed;
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = [](void*, ucs_status_t status, void* data) { *static_cast<Flushed*>(data) = {true, status}; };
    param.user_data = &flushed;
    void* flush = ucp().ucp_ep_flush_nbx(endpoint_, &param);
    if (UCS_PTR_IS_ERR(flush)) return UCS_PTR_STATUS(flush);
    for (uint64_t begin = now_ns(); flush && !flushed.done && now_ns() - begin < within_ns;) worker_->progress();
    ucp().ucp_request_free(get);
    return flush ? flushed.status : UCS_OK;
  }

  const wire::ShareReply share_;
  std::unique_ptr<ucx::UcpWorker> worker_;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
};

// The peer's part, in a process of its own, since UCX does not forget what it has in memory.
[[noreturn]] void use_key(const wire::ShareReply& share, int results, int revoked) {
  constexpr uint64_t kGraceNs = 3'000'000'000;
  auto report = [&](bool read) { (void)!write(results, read ? "r" : "-", 1); };
  char turn;
  Peer early(share);
  report(early.connect() && early.reads_secret(kWithinNs));
  if (read(revoked, &turn, 1) != 1) _exit(1);
  report(early.reads_secret(kGraceNs));
  Peer late(share);
  report(late.connect() && late.reads_secret(kGraceNs));
  _exit(0);
}

TEST(ShareKey, AKeyIsRefusedAfterItsClientHasGone) {
  int fd = memfd_create("region", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, static_cast<off_t>(wire::kSlabBytes)), 0);
  ASSERT_EQ(pwrite(fd, kSecret, sizeof kSecret, 0), static_cast<ssize_t>(sizeof kSecret));
  ucx::Settings settings = {FARSIDE_UCX_HELPER, "tcp"};
  RegionShare share;
  wire::ShareReply reply;
  int error;
  for (uint64_t begin = now_ns(); (error = share.share(settings, fd, {0, wire::kSlabBytes}, 1, &reply)) == -EAGAIN;) {
    ASSERT_LT(now_ns() - begin, kWithinNs);
    os::nanosleep_ns(1'000'000);
  }
  ASSERT_EQ(error, 0);
  int results[2], revoked[2];
  ASSERT_EQ(pipe(results) | pipe(revoked), 0);
  pid_t peer = fork();
  if (peer == 0) use_key(reply, results[1], revoked[0]);
  close(results[1]);
  char result = 0;
  ASSERT_EQ(read(results[0], &result, 1), 1);
  EXPECT_EQ(result, 'r');  // the key is right
  share.revoke().reset();  // as the server does when the region's last connection has gone
  ASSERT_EQ(write(revoked[1], "x", 1), 1);
  ASSERT_EQ(read(results[0], &result, 1), 1);
  EXPECT_EQ(result, '-') << "by a connection that it had before";
  ASSERT_EQ(read(results[0], &result, 1), 1);
  EXPECT_EQ(result, '-') << "by a new connection";
  int status = 0;
  EXPECT_EQ(waitpid(peer, &status, 0), peer);
  for (int end : {results[0], revoked[0], revoked[1], fd}) close(end);
}

}  // namespace
}  // namespace farside::server
