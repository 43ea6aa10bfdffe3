#include "server/client_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/os.h"
#include "server/memory/guarded.h"
#include "transport/ranges.h"
#include "wire/crc32c.h"

namespace farside::server {

ClientSocket::ClientSocket(int fd, bool is_unix, const tls::Credentials* tls, Counters* counters)
    : fd_(fd), is_unix_(is_unix), counters_(counters) {
  if (!tls) return;
  tls_ = tls::TlsSocket::accept(*tls, fd);
  is_over_ = !tls_;  // no memory
}

void ClientSocket::close() {
  tls_.reset();
  for (int* fd : {&fd_, &passed_fd_, &accepted_fd_}) {
    if (*fd >= 0) os::close(std::exchange(*fd, -1));
  }
}

ssize_t ClientSocket::receive(std::byte* to, size_t bytes, bool keeps_passed) {
  ssize_t n = is_unix_ ? os::recv_with_fds(fd_, to, bytes, {&passed_fd_, keeps_passed ? 1u : 0u})
              : tls_   ? tls_->receive(to, bytes)
                       : os::recv(fd_, to, bytes, MSG_DONTWAIT);
  if (n > 0) note_received(static_cast<size_t>(n));
  return n;
}

void ClientSocket::end_of_input(bool failed) {
  is_broken_ = failed;
  is_over_ = true;
}

bool ClientSocket::is_gone() const {
  pollfd fd = {fd_, POLLRDHUP, 0};
  return poll(&fd, 1, 0) > 0;
}

void ClientSocket::make_blocking() { os::fcntl(fd_, F_SETFL, os::fcntl(fd_, F_GETFL, 0) & ~O_NONBLOCK); }

ssize_t ClientSocket::send_some() {
  if (!tls_) return os::send(fd_, output_.data(), output_.size(), MSG_DONTWAIT);
  return tls_->send(output_.data(), output_.size());
}

bool ClientSocket::flush() {
  while (!output_.empty() && !is_over_) {
    ssize_t n = send_some();
    if (n == -EINTR) continue;
    if (n == -EAGAIN) return false;
    if (n < 0) {
      is_broken_ = is_over_ = true;
      return false;
    }
    output_.consume(static_cast<size_t>(n));
    note_sent(static_cast<size_t>(n));
  }
  return !is_over_;
}

// The output is the first data of this socket, so it is sent as a whole.
void ClientSocket::send_passed() {
  if (passing_.empty()) return;
  ssize_t n = os::send_with_fds(fd_, output_.data(), output_.size(), std::exchange(passing_, {}));
  if (n > 0) output_.consume(static_cast<size_t>(n));
  else is_over_ = true;
}

bool ClientSocket::send_in_place(wire::FrameHeader header, std::span<const iovec> pieces) {
  if (!flush()) return false;
  uint32_t crc = wire::header_crc(header);
  bool readable = guarded([&] {
    for (const iovec& p : pieces) crc = wire::crc32c(crc, p.iov_base, p.iov_len);
  });
  if (!readable) return false;
  header.crc = crc;
  iovec all[1 + wire::kMaxRanges] = {{&header, sizeof header}};
  std::copy(pieces.begin(), pieces.end(), all + 1);
  msghdr message = {};
  message.msg_iov = all;
  message.msg_iovlen = 1 + pieces.size();
  ssize_t n = os::sendmsg(fd_, &message, MSG_DONTWAIT);
  if (n == -EAGAIN || n == -EINTR) n = 0;
  if (n >= 0) note_sent(static_cast<size_t>(n));
  is_broken_ = is_over_ = true;  // unless the reply can be completed; there may be no memory for that
  if (n < 0) return true;
  iovec* rest = all;
  transport::advance(&rest, static_cast<size_t>(n));
  bool completes = copy_to_output(rest, sizeof header + header.payload_bytes - static_cast<size_t>(n));
  is_broken_ = is_over_ = !completes;
  return true;
}

// False: the memory cannot be read.
bool ClientSocket::copy_to_output(const iovec* pieces, size_t bytes) {
  if (bytes == 0) return true;
  std::byte* to = output_.reserve(bytes);
  bool copied = guarded([=] {
    const iovec* piece = pieces;
    for (size_t done = 0; done < bytes; done += (piece++)->iov_len)
      copy_shared(to + done, piece->iov_base, piece->iov_len);
  });
  if (copied) output_.commit(bytes);
  return copied;
}

bool ClientSocket::accept_passed() {
  if (passed_fd_ < 0 || accepted_fd_ >= 0) return false;
  accepted_fd_ = std::exchange(passed_fd_, -1);
  return true;
}

int ClientSocket::take_accepted() { return std::exchange(accepted_fd_, -1); }

void ClientSocket::note_received(size_t bytes) {
  received_ += bytes;
  if (client_) count(client_->received, bytes);
  count(counters_->bytes_in, bytes);
}

void ClientSocket::note_sent(size_t bytes) {
  sent_ += bytes;
  if (client_) count(client_->sent, bytes);
  count(counters_->bytes_out, bytes);
}

}  // namespace farside::server
