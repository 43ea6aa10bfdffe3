// One thread's channel to all servers of a pool. Requests are split by the servers that hold their slabs. A write
// or discard is sent to every holder of a slab, and completes when all holders that are not lost have acknowledged it;
// a read is sent to one holder. While a repair copies a slab to a further server, writes are sent there, too
// (docs/internals/replicas.md). When a server is lost, reads in flight are sent again to other holders, and a write
// succeeds if another holder has acknowledged it.
//
// The data of a write from a pipe for several servers is read into a buffer once, and kept until all have acknowledged.
#pragma once
#include "remote/slab_placement.h"
#include "transport/transport.h"

namespace farside::remote {

class PoolChannel final : public transport::Channel {
 public:
  // Both outlive the channel. The channel to each server is opened when it is first needed.
  PoolChannel(PoolServers* servers, SlabPlacement* placement) : servers_(*servers), placement_(*placement) {}
  ~PoolChannel() override;

  int submit_read(std::span<const transport::ByteRange> ranges, transport::Token* token) override;
  int submit_write(std::span<const transport::ByteRange> ranges, int pipe, transport::Token* token) override;
  int submit_discard(std::span<const transport::ByteRange> ranges, transport::Token* token) override;
  int poll(transport::Token token) override;
  int wait(transport::Token token, uint64_t timeout_ns) override;
  void gather(bool on) override;
  transport::Mapping mapping() const override { return servers_.mapping(); }
  bool proceeds_alone() const override { return !mapping().immediate; }

 private:
  enum class Kind : uint8_t { kRead, kWrite, kDiscard };

  // A request in flight. The low four bits of the token are its index in requests_.
  struct Request {
    transport::Token token = 0;  // 0: free
    Kind kind;
    bool incomplete;    // a server of this request is lost or refused it
    int error;          // the result of that server
    unsigned refusing;  // the only server that has it refused it; kMaxServers: none did
    uint32_t versions;  // of the servers of its slabs when it was sent, their sum
    ServerSet joining;  // of the servers to which it was sent, those that joined
    ServerSet awaited;  // servers that have not replied
    transport::Token asked[kMaxServers];
    size_t count;                  // of ranges
    std::byte* staging = nullptr;  // data from a pipe; kept for the requests that follow
    size_t staging_bytes = 0;
    transport::ByteRange ranges[transport::kMaxRanges];
  };

  int begin(Kind kind, std::span<const transport::ByteRange> ranges, uint64_t max_bytes, Request** request);
  int finish_submit(Request* request, int sent, transport::Token* token);
  int stage(Request* request, int pipe);
  int send(Request* request);
  int send_to(Request* request, unsigned server, int pipe);
  std::span<transport::ByteRange> part_for(const Request& request, unsigned server);
  int targets(Request* request, ServerSet* all);
  int read_targets(Request* request, ServerSet lost, ServerSet* all, ServerSet* failed);
  int targets_of(Request* request, uint64_t slab, ServerSet lost, ServerSet* servers);
  ServerSet refresh();
  bool has_moved(const Request& request) const;
  void end(Request* request);
  int progress(Request* request);
  void ask(Request* request, unsigned server);
  void answered(Request* request, unsigned server, int result);
  int conclude(Request* request);
  ServerSet lost_holders(const Request& request) const;
  void open(unsigned server);
  void drop(unsigned server);
  Request* find(transport::Token token);
  Request* free_request();
  void send_held();

  PoolServers& servers_;
  SlabPlacement& placement_;
  ServerChannel channels_[kMaxServers];
  uint32_t reused_ = 0;  // as of the last look at the servers; see ServerStates
  bool gathers_ = false;
  ServerSet held_ = 0;  // servers whose channels may have gathered requests
  uint64_t sequence_ = 0;
  // While a request is being sent: the servers of each of its pieces, and the ranges for one server.
  ServerSet targets_[2 * transport::kMaxRanges];
  transport::ByteRange part_[transport::kMaxRanges];
  Request requests_[transport::kMaxInFlight];
};

}  // namespace farside::remote
