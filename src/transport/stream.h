// A channel over a stream socket, TCP or Unix, to a memory server. Each sendmsg sends one or several requests; replies
// are matched by request id. Read data is received directly into the buffers of the ranges, and its checksum is
// verified before the token completes. After an error of the connection or a violation of the protocol the socket is
// reset, and the channel has failed; reconnecting.h replaces such channels. A channel that is destroyed closes its
// socket in good order, which tells the server that the client needs the connection no more.
#pragma once
#include <sys/uio.h>
#include <memory>

#include "transport/dial.h"
#include "transport/transport.h"
#include "transport/waiting.h"
#include "wire/protocol.h"

namespace farside::transport {

class StreamChannel final : public Channel {
 public:
  // Connects and sends the dialer's greeting; nullptr with the reason in *status.
  static std::unique_ptr<StreamChannel> open(const Dialer& dialer, Status* status);

  // Takes ownership of a non-blocking connection whose greeting is complete, and which is registered in *fds.
  // The dialer, which may be null, outlives the channel. Requests that the server refuses are reported through it.
  StreamChannel(int fd, OwnFds* fds, const Dialer* dialer = nullptr);
  ~StreamChannel() override;

  int submit_read(std::span<const ByteRange> ranges, Token* token) override;
  int submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) override;
  int submit_discard(std::span<const ByteRange> ranges, Token* token) override;
  void gather(bool on) override { gathers_ = on; }
  int poll(Token token) override;
  int wait(Token token, uint64_t timeout_ns) override;

  // Gives the connection up, so that another one can replace it. Requests without a reply fail with -ECONNRESET, and
  // their buffers are not written. Returns the descriptor, which the caller closes; -1: the connection had failed
  // before.
  int abandon();

  // Bytes sent and received so far: it changes while the connection makes progress.
  uint64_t bytes_transferred() const { return transferred_; }

 private:
  static constexpr int kInFlight = 1;

  // A request in flight. The low four bits of the token are its index in requests_.
  //   pieces[0] is the head of the frame. pieces[1..] are the near buffers: the data of a write, or the destinations of
  //   a read. One more piece is reserved for the receive buffer.
  struct Request {
    Token token = 0;  // 0: free
    wire::Op op;
    int result;            // kInFlight, 0 or -errno
    uint32_t reply_bytes;  // expected payload of the reply
    iovec* send_end;       // end of the pieces to be sent
    iovec* send_next;
    iovec* land_end;               // end of the pieces that receive the reply
    std::byte* staging = nullptr;  // for writes from a pipe; kept for the requests that follow
    size_t staging_bytes = 0;
    iovec pieces[kMaxRanges + 2];
    wire::FrameHeader header;  // header, list_head and ranges are sent as one piece
    wire::ListHeader list_head;
    wire::ByteRange ranges[kMaxRanges];
  };

  Request* find(Token token);
  Request* free_request();
  void fill_head(Request* request, wire::Op op, std::span<const ByteRange> ranges, size_t data_bytes);
  int stage_pipe(Request* request, int pipe, size_t bytes);
  int start(Request* request, Token* token);
  void fail(int error);
  void pump();
  void pump_send();
  int collect(iovec* pieces);
  void sent(size_t bytes);
  void pump_receive(int flags);
  ssize_t receive_once(int flags, bool* drained);
  int consume();
  int begin_reply();
  int finish_reply();
  void landed(size_t bytes);
  void sleep(uint64_t ns);

  static constexpr size_t kReceiveBytes = 5 * 4096;  // one receive takes the replies of all gathered reads, a page each
  static constexpr int kMaxPieces = 32;              // in one sendmsg
  static constexpr unsigned kGathered = 4;           // requests sent together, so that the server need not wait for all

  int fd_;  // -1: the channel has failed
  OwnFds* fds_;
  const Dialer* const dialer_;
  bool reports_end_ = false;  // no new connection is made in place of this one
  uint64_t sequence_ = 0;
  uint64_t transferred_ = 0;
  ReplyTimes reply_times_;

  // Slots whose request is not sent completely, in the order of submission.
  uint8_t send_queue_[kMaxInFlight];
  unsigned send_first_ = 0, send_count_ = 0;
  bool gathers_ = false;

  // The reply that is being received: first its header, then its payload.
  wire::FrameHeader reply_;
  size_t reply_header_bytes_ = 0;  // received so far
  size_t reply_left_ = 0;          // payload bytes not yet received
  uint32_t reply_crc_ = 0;
  Request* replied_ = nullptr;  // set while its payload is being received
  iovec* land_next_ = nullptr;
  iovec* land_end_ = nullptr;
  wire::ErrorReply error_;
  iovec error_pieces_[2];

  size_t buffered_ = 0, consumed_ = 0;  // bytes of buffer_
  std::byte buffer_[kReceiveBytes];
  Request requests_[kMaxInFlight];
};

}  // namespace farside::transport
