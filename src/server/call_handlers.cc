#include "server/call_handlers.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include "server/access/tokens.h"

namespace farside::server {

bool CallHandlers::can_open() const { return service_ && region_->tenant()->may(kMayOffload); }

Outcome CallHandlers::open(wire::Bytes payload) {
  wire::CallOpen open;
  if (!service_) return replies_->refuse(ENOTSUP, "this server executes no functions; start it with --offload");
  if (!region_->tenant()->may(kMayOffload))
    return replies_->refuse(EPERM, "this token may not call functions; see allow= of --tokens");
  if (calls_ || wire::decode_call_open(payload, &open) < 0) return replies_->refuse(EINVAL);
  const CallConfig& config = service_->config();
  if (open.process >= config.max_processes)
    return replies_->refuse(EAGAIN, "the server executes no more calls of a client at a time; see --offload-processes");
  calls_ = std::make_unique<Calls>(*service_, *region_, open, socket_->has_tls() ? -1 : socket_->fd(),
                                   [this] { return socket_->is_gone(); });
  return replies_->reply(wire::bytes_of(wire::CallLimits{config.limits.code_bytes, config.limits.wall_ns}));
}

Outcome CallHandlers::add_code(wire::Bytes payload) {
  wire::CallCodeRequest request;
  wire::CallCodeReply answer;
  if (!calls_) return replies_->refuse(EINVAL);
  int r = wire::decode_call_code(payload, &request);
  if (r == 0) r = calls_->add_code(request, &answer);
  if (r == -E2BIG) return replies_->refuse(E2BIG, "the program or shared object is larger than --offload-code permits");
  return r < 0 ? replies_->refuse(-r) : replies_->reply(wire::bytes_of(answer));
}

Outcome CallHandlers::call(wire::Bytes payload) {
  wire::CallPayload request;
  if (!calls_) return replies_->refuse(EINVAL);
  if (int r = wire::decode_call(payload, region_->bytes(), &request); r < 0) return replies_->refuse(-r);
  Status ready = calls_->prepare(request);
  if (ready.ok() && calls_->is_direct()) return Outcome::kToHost;
  std::byte* reply = reserve_reply();
  if (ready.ok()) {
    calls_->relay({payload.data() - sizeof(wire::FrameHeader), sizeof(wire::FrameHeader) + payload.size()}, reply);
  } else {
    auto bytes = static_cast<uint32_t>(strlen(ready.text()));
    wire::CallReply header = {-ready.code(), 0, bytes, 0};
    memcpy(reply, &header, sizeof header);
    memcpy(reply + sizeof header, ready.text(), bytes);
  }
  return commit_reply(reply, replies_->request().request);
}

// reply: a wire::CallReply and its bytes, where reserve_reply() is.
Outcome CallHandlers::commit_reply(const std::byte* reply, uint64_t request) {
  wire::CallReply header;
  memcpy(&header, reply, sizeof header);
  return replies_->commit(sizeof header + header.result_bytes, request);
}

bool CallHandlers::give_to_host(Buffer* input, uint64_t* executed) {
  socket_->make_blocking();  // this side does not rely on it
  std::vector<std::byte> received(input->data(), input->data() + input->size());
  input->consume(input->size());
  uint64_t request;
  std::byte* reply = reserve_reply();
  auto served = calls_->serve(&received, &request, reply, executed);
  if (served == sandbox::Sandbox::Served::kLost) return false;
  if (served == sandbox::Sandbox::Served::kFailed) commit_reply(reply, request);
  else input->append(received.data(), received.size());
  return true;
}

}  // namespace farside::server
