#include "sandbox/call_executor.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "farside/offload.h"
#include "sandbox/host_io.h"
#include "wire/crc32c.h"

namespace farside::sandbox {
namespace {

using wire::CallRequest;

constexpr uint64_t kPollNs = 200'000;  // after a call, before the process sleeps; as servers poll for requests

}  // namespace

uint64_t CallExecutor::map_shared() {
  struct stat info = {};
  if (fstat(kReadOnlyFd, &info) != 0) give_up("cannot look at the region: ");
  region_bytes_ = static_cast<uint64_t>(info.st_size) - sizeof(wire::RegionTrailer);
  void* trailer =
      mmap(nullptr, sizeof *trailer_, PROT_READ, MAP_SHARED, kReadOnlyFd, static_cast<off_t>(region_bytes_));
  void* state = mmap(nullptr, sizeof *state_, PROT_READ | PROT_WRITE, MAP_SHARED, kStateFd, 0);
  if (trailer == MAP_FAILED || state == MAP_FAILED) give_up("cannot map shared memory: ");
  trailer_ = static_cast<const wire::RegionTrailer*>(trailer);
  state_ = static_cast<HostState*>(state);
  close(kStateFd);
  return ranges_.reserve(region_, region_bytes_) ? region_bytes_ : 0;
}

// The first `bytes` of the result.
void CallExecutor::reply(int status, bool started, size_t bytes) {
  state_->phase = HostPhase::kReplies;
  reply_.head = {status, started ? 1u : 0u, static_cast<uint32_t>(bytes), 0};
  auto payload = static_cast<uint32_t>(sizeof reply_.head + bytes);
  reply_.header = wire::make_header(wire::Op::kCall, wire::kFlagReply, state_->request, payload);
  reply_.header.crc = wire::crc32c(wire::header_crc(reply_.header), &reply_.head, payload);
  send_all(kConnectionFd, &reply_, kHeader + payload);
  state_->phase = HostPhase::kWaits;
}

void CallExecutor::reply_error(int status, const char* text, const char* more) {
  int length = snprintf(reply_.result, 256, "%s%s", text, more);
  reply(status, false, static_cast<size_t>(length < 256 ? length : 255));
}

// The arguments are copied to where their alignment is that of malloc.
void CallExecutor::execute(const wire::CallPayload& call) {
  const CallRequest& head = call.head;
  auto entry = reinterpret_cast<farside_offload_entry>(objects_.code_at(head.entry_object, head.entry));
  void* function = head.function ? objects_.code_at(head.function_object, head.function) : nullptr;
  if (!entry || (head.function && !function))
    return reply_error(-ENOEXEC, "the program or shared object has no function at this place");
  if (!ranges_.map(call))
    return reply_error(-EADDRINUSE, "the server cannot map a range at its address: ", strerror(errno));
  memcpy(arguments_, call.arguments.data(), head.argument_bytes);
  farside_offload_output output = {reply_.result, sizeof reply_.result, 0};
  int status = entry(function, arguments_, head.argument_bytes, &output);
  reply(status < -4095 ? -EINVAL
        : status < 0   ? status
                       : 0,
        true, output.bytes < sizeof reply_.result ? output.bytes : sizeof reply_.result);
}

// Receives what there is, after a while of polling. With `wanted` bytes more a frame is complete.
void CallExecutor::receive_some(size_t wanted) {
  Input& in = input_;
  if (in.begin > 0 && (in.begin == in.end || in.end + wanted > sizeof in.bytes)) {
    memmove(in.bytes, in.bytes + in.begin, in.end - in.begin);
    in.end -= in.begin;
    in.begin = 0;
  }
  size_t room = sizeof in.bytes - in.end;
  ssize_t n = -1;
  for (uint64_t start = now_ns(); n < 0 && now_ns() - start < kPollNs && !core_.is_crowded();) {
    n = recv(kConnectionFd, in.bytes + in.end, room, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) _exit(0);
    if (n < 0) core_.yield();  // the client may need this core
  }
  if (n < 0) n = recv(kConnectionFd, in.bytes + in.end, room, 0);
  if (n <= 0) _exit(0);
  in.end += static_cast<size_t>(n);
}

// What lies at the beginning of the input: 0, a call that may be executed; more, so many bytes of a frame are missing;
// less, the server has to look at it.
ssize_t CallExecutor::next_call(wire::FrameHeader* header, wire::CallPayload* call) const {
  const char* at = input_.bytes + input_.begin;
  size_t there = input_.end - input_.begin;
  if (there < kHeader) return static_cast<ssize_t>(kHeader - there);
  memcpy(header, at, kHeader);
  if (wire::check_request_header(*header) < 0 || header->op != static_cast<uint8_t>(wire::Op::kCall)) return -1;
  if (there < kHeader + header->payload_bytes) return static_cast<ssize_t>(kHeader + header->payload_bytes - there);
  wire::Bytes payload(reinterpret_cast<const std::byte*>(at) + kHeader, header->payload_bytes);
  if (wire::crc32c(wire::header_crc(*header), payload.data(), payload.size()) != header->crc) return -1;
  if (wire::decode_call(payload, region_bytes_, call) < 0) return -1;
  bool has_snapshots = __atomic_load_n(&trailer_->live_overlays, __ATOMIC_ACQUIRE) != 0;
  return is_direct_ && has_snapshots ? -1 : 0;
}

// Until there is something for the server, or, as a relay, until everything is executed.
void CallExecutor::execute_calls() {
  for (;;) {
    wire::FrameHeader header;
    wire::CallPayload call;
    ssize_t missing = next_call(&header, &call);
    if (missing < 0 || (missing > 0 && !is_direct_)) return;
    if (missing > 0) {
      receive_some(static_cast<size_t>(missing));
      continue;
    }
    state_->request = header.request;
    state_->calls.fetch_add(1, std::memory_order_relaxed);
    state_->phase = HostPhase::kExecutes;
    execute(call);
    input_.begin += kHeader + header.payload_bytes;
    ranges_.prepare_next();
  }
}

void CallExecutor::serve() {
  for (;;) {
    Handover handover;
    receive_all(kControlFd, &handover, sizeof handover);
    if (handover.bytes > kMaxHandover) _exit(1);
    receive_all(kControlFd, input_.bytes, handover.bytes);
    input_.begin = 0;
    input_.end = handover.bytes;
    execute_calls();
    if (!is_direct_) continue;
    handover.bytes = input_.end - input_.begin;
    send_all(kControlFd, &handover, sizeof handover);
    send_all(kControlFd, input_.bytes + input_.begin, handover.bytes);
  }
}

}  // namespace farside::sandbox
