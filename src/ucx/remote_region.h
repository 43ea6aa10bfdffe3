// A region of a program, as the relay knows it: which of its pages are stored, the remote keys of its slabs, and the
// one-sided requests in flight. Used by one thread.
//
// A request is executed one-sidedly if all of its pages are stored, and the server shares their slabs. So a one-sided
// access never makes the server store a page, and the accounts of the server stay exact. All else is the server's.
//
// States: kApart (no connection to the server's UCX) -> kTogether -> kRevoking, after a request has failed or took too
// long: it may still take effect at any time, so the server revokes all access before writes are repeated through the
// server -> kApart.
#pragma once
#include <array>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ucx/ucp_worker.h"
#include "wire/codec.h"

namespace farside::ucx {

// A connection of the program to the region, as the region needs it.
class RegionLink {
 public:
  virtual ~RegionLink() = default;
  virtual bool is_open() const = 0;
  virtual void send_local(wire::Bytes frame) = 0;
  virtual void send_remote(wire::Bytes frame) = 0;
  virtual void repeat(wire::Bytes write) = 0;  // a write that was started one-sidedly
  virtual void ask_to_revoke() = 0;
  virtual void resume() = 0;  // changes may begin again
};

class RemoteRegion {
 public:
  // is_new: the server has just made it, so it has no snapshots.
  RemoteRegion(UcpWorker* worker, uint64_t bytes, bool is_new)
      : worker_(*worker), ucp_(worker->ucp()), bytes_(bytes), has_snapshots_(!is_new) {}
  ~RemoteRegion();
  RemoteRegion(const RemoteRegion&) = delete;
  RemoteRegion& operator=(const RemoteRegion&) = delete;

  uint64_t bytes() const { return bytes_; }

  // Connections of the program that are open.
  void add(RegionLink* link) { links_.push_back(link); }
  void remove(RegionLink* link);
  bool has_links() const { return !links_.empty(); }
  bool has_requests() const { return !requests_.empty(); }

  // Starts a request of the link: a read or a write, a frame whose checksum is right. False: it is for the server.
  bool start(const std::shared_ptr<RegionLink>& link, wire::Op op, const wire::ListRequest& list, wire::Bytes frame);
  // False: a write of a connection that has ended, or one that is to be repeated, may still take effect. No other one,
  // and no discard, is to begin.
  bool may_change() const;
  // What the server did, and what it is about to do.
  void stored(const std::vector<wire::ByteRange>& ranges);
  void discarding(const wire::RangeList& ranges);
  // From the request for a snapshot to its end. While there are snapshots, the server must see each write.
  void snapshot_begins() { snapshots_pending_++, snapshots_seen_++, has_snapshots_ = true; }
  void snapshot_made() { snapshots_pending_--, snapshots_seen_++; }

  // Whether the server is to be asked to share the slab, and later its answer: 0 or -errno. `asked_after` is what
  // snapshots_seen() was.
  bool wants(uint64_t offset, uint64_t now);
  uint64_t snapshots_seen() const { return snapshots_seen_; }
  void take_answer(uint64_t offset, int code, const wire::ShareReply& reply, uint64_t asked_after, uint64_t now);

  // Answers what is complete, and gives up what has failed or took too long.
  void settle(uint64_t now);
  // Gives up all one-sided requests.
  void abandon(uint64_t now);
  bool is_to_be_revoked() const { return state_ == State::kRevoking && !revoke_sent_; }
  void revoke_was_sent() { revoke_sent_ = true; }
  void revoke_was_lost();      // with its connection
  void revoked(uint64_t now);  // the server's reply

 private:
  enum class State { kApart, kTogether, kRevoking };
  static constexpr uint64_t kTimeoutNs = 2'000'000'000;  // of a one-sided request
  static constexpr uint64_t kSoonNs = 5'000'000;         // until a slab is asked for again
  static constexpr uint64_t kLaterNs = 1'000'000'000;    // likewise, where the server has a reason not to share it
  static constexpr uint64_t kLastPauseNs = 60'000'000'000;
  static constexpr size_t kPages = wire::kSlabBytes / wire::kPageBytes;

  struct Slab {
    ucp_rkey_h key = nullptr;
    uint64_t address = 0;
    uint64_t next_try_ns = 0;
    unsigned stored = 0;  // bits in `pages`
    std::array<uint64_t, kPages / 64> pages = {};
  };
  // Kept until UCX has finished with its buffers.
  struct Request {
    const Library* ucp;
    std::weak_ptr<RegionLink> link;
    bool is_write;
    bool abandoned = false;
    unsigned pending = 0;  // operations of UCX
    ucs_status_t status = UCS_OK;
    uint64_t since_ns;
    std::vector<std::byte> frame;        // of the program
    std::unique_ptr<std::byte[]> reply;  // a frame
    size_t reply_bytes;
  };
  struct Repetition {
    std::weak_ptr<RegionLink> link;
    std::vector<std::byte> frame;
  };

  template <typename Visit>
  bool for_each_page(wire::ByteRange range, Visit visit);
  void forget_pages(uint64_t number, wire::ByteRange discarded, Slab* slab);
  bool is_reachable(const wire::RangeList& ranges);
  template <typename Transfer>
  void transfer(Request* request, const wire::RangeList& ranges, std::byte* data, Transfer transfer);
  void track(Request* request, ucs_status_ptr_t result);
  static void completed(void* operation, ucs_status_t status, void* request);
  static void endpoint_failed(void* region, ucp_ep_h endpoint, ucs_status_t status);
  bool connect(const wire::ShareReply& reply);
  void disconnect();
  void drop_key(Slab* slab);
  void drop_all_keys();
  void answer(Request* request);
  void resume_links();
  void note_no_snapshots(const wire::ShareReply& reply, uint64_t asked_after);

  UcpWorker& worker_;
  const Library& ucp_;
  const uint64_t bytes_;
  State state_ = State::kApart;
  std::vector<RegionLink*> links_;
  std::unordered_map<uint64_t, Slab> slabs_;  // by number
  std::list<std::unique_ptr<Request>> requests_;
  std::vector<Repetition> repetitions_;  // writes, after the server has revoked all access
  std::vector<ucp_rkey_h> old_keys_;     // destroyed when no request is in flight

  ucp_ep_h endpoint_ = nullptr;
  bool can_be_closed_ = false;  // the endpoint's transports notice failures of their peer
  bool endpoint_failed_ = false;
  uint64_t epoch_ = 0;
  bool revoke_sent_ = false;
  uint64_t not_before_ns_ = 0, pause_ns_ = kLaterNs;  // until access is asked for again
  bool never_ = false;                                // the server has no UCX

  bool has_snapshots_;  // or may have
  unsigned snapshots_pending_ = 0;
  uint64_t snapshots_seen_ = 0;  // requests for snapshots and their replies
  uint64_t next_look_ns_ = 0;    // whether there still are snapshots
};

}  // namespace farside::ucx
